"""What policies that allocate or choose regions may know of a workload."""

from __future__ import annotations

from typing import Protocol


class Work(Protocol):
    """A workload as policies that allocate or choose regions see it. How long it runs only the `QueuePass` says."""

    @property
    def index(self) -> int:
        """Its place by (submit time, id): unique, and the last key of every sort."""
        ...

    @property
    def tenant(self) -> int:
        """Its tenant's place by name."""
        ...

    @property
    def gpus(self) -> int:
        """Of all base tasks together."""
        ...

    @property
    def shape(self) -> int:
        """A number that workloads have in common when they ask for the same in the same regions."""
        ...

    @property
    def eligible(self) -> tuple[int, ...]:
        """Positions of the regions that it may run in, ascending."""
        ...

    @property
    def own_region(self) -> int:
        """Position of the region that its trace names; negative when it names none that there is."""
        ...

    @property
    def submitted_s(self) -> float: ...
