"""Who follows what becomes of workloads beside the parts that move them along."""

from __future__ import annotations

from typing import Protocol

from simulator.engine.workloads import SimulatedWorkload


class AttemptObserver(Protocol):
    """Hears of starts and completions, and of workloads that are about to wait."""

    def comes_to_queue(self, work: SimulatedWorkload) -> None:
        """It may still be changed: none has looked at it."""
        ...

    def started(self, work: SimulatedWorkload) -> None: ...

    def completed(self, work: SimulatedWorkload) -> None: ...
