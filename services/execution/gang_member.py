"""One task of a gang, as the gang knows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from domain.placement import TaskPlacement
from services.execution.gang_outcome import TaskEnd
from services.execution.runner_messages import RunnerReport, RunnerState
from services.execution.runner_pool import RunnerHandle

NOT_STARTED = RunnerReport(version=0, state=RunnerState.READY)


@dataclass(slots=True, eq=False)
class Member:
    """One task of the gang. Without a handle its runner could not be found any more."""

    placement: TaskPlacement
    handle: RunnerHandle | None
    report: RunnerReport = NOT_STARTED
    lost: str = ""
    there: bool = False
    """Its runner has answered: the task has its place."""
    released: bool = False
    """The attempt goes on, or ends, without it."""
    missing: bool = False
    """A flexible task that was killed or lost: the attempt goes on without it, once it is resized to do so."""
    clock_s: float = 0.0
    """What its runner's clock showed when it was asked last."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is over and, if it was released or is missing, its runner removed."""

    def take(self, report: RunnerReport) -> None:
        """Takes note of a report; answers may overtake each other."""
        if report.version > self.report.version:
            self.report = report

    @property
    def over(self) -> bool:
        return bool(self.lost) or self.report.state is RunnerState.ENDED

    @property
    def end(self) -> TaskEnd:
        return TaskEnd(self.placement, None if self.lost else self.report, self.lost)

    @property
    def was_killed(self) -> bool:
        """It is gone by no doing of its own. A program that fails by itself, or takes too much memory, would do so again."""
        if self.report.out_of_memory and not self.lost:
            return False
        return bool(self.lost or self.report.unprepared) or (self.report.exit_code or 0) < 0
