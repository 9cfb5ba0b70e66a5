"""What policies may know of a workload."""

from __future__ import annotations

from typing import Protocol


class Work(Protocol):
    """A workload as policies see it. How long it runs is an oracle's knowledge: who uses it says so."""

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

    @property
    def queued_since_s(self) -> float:
        """Since when it waits: its submission, or its last eviction."""
        ...

    @property
    def remaining_s(self) -> float:
        """Seconds of work that were left when it came into the queue, or when its attempt started."""
        ...

    @property
    def attained_s(self) -> float:
        """Seconds that it ran in earlier attempts."""
        ...

    @property
    def attained_gpu_s(self) -> float:
        """GPU-seconds that it received in earlier attempts."""
        ...

    @property
    def started_s(self) -> float:
        """When its present attempt started to work; not a number while there is none."""
        ...
