"""Attempts to move along, with every invariant checked after every step."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster_manager.attempt_run.actions import AttemptAction, RecordEnd
from cluster_manager.attempt_run.events import (
    AttemptEvent,
    CancellationNoted,
    CheckpointSaved,
    Completed,
    Eviction,
    FlexibleTasksLost,
    Gone,
    GraceOver,
    LeaveAsked,
    MachineLost,
    PlaceFreed,
    Progressed,
    Resized,
    Started,
    TaskFailed,
    TaskLost,
)
from cluster_manager.attempt_run.invariants import check
from cluster_manager.attempt_run.machine import step
from cluster_manager.attempt_run.run import AttemptFacts, AttemptRun, Phase, new_run
from domain.events import EvictionCause
from domain.identifiers import AttemptNumber, JobName, WorkloadId
from domain.placement import AttemptKey
from domain.plan import TaskName
from domain.rank import Standing
from domain.workload import RetryPolicy

KEY = AttemptKey(WorkloadId("w1"), AttemptNumber(2))
BETTER = AttemptKey(WorkloadId("better"), AttemptNumber(1))
PREEMPTED = Eviction(EvictionCause.PREEMPTED, BETTER, Standing(1, 0))
START = 40.0
"""What the attempt before it had saved."""

EVERY_EVENT: tuple[AttemptEvent, ...] = (
    PlaceFreed(1.0),
    Started(2.0),
    Progressed(3.0, START + 10.0, START + 5.0, 1.0),
    CheckpointSaved(4.0, START + 8.0),
    Resized(5.0, ()),
    LeaveAsked(6.0, PREEMPTED),
    MachineLost(7.0),
    GraceOver(7.5),
    CancellationNoted(8.0),
    TaskFailed(9.0),
    TaskLost(10.0),
    FlexibleTasksLost(10.5, (TaskName(JobName("train"), 2),)),
    Completed(11.0, START + 60.0, START + 60.0),
    Gone(12.0, START + 20.0, START + 15.0, "it was asked to stop"),
)
"""One of each kind."""

PATHS: dict[Phase, tuple[AttemptEvent, ...]] = {
    Phase.DISPATCHED: (),
    Phase.STARTING: (PlaceFreed(0.0),),
    Phase.RUNNING: (PlaceFreed(0.0), Started(0.0)),
    Phase.LEAVING: (PlaceFreed(0.0), Started(0.0), LeaveAsked(0.0, PREEMPTED)),
    Phase.BROKEN: (PlaceFreed(0.0), Started(0.0), TaskLost(0.0)),
    Phase.ENDED: (PlaceFreed(0.0), Started(0.0), Completed(0.0)),
}
"""How an attempt gets into each phase."""


@dataclass
class CheckedAttempt:
    """An attempt and everything that was to be done about it; the invariants hold after every event."""

    run: AttemptRun
    actions: list[AttemptAction] = field(default_factory=list)

    def take(self, *events: AttemptEvent) -> tuple[AttemptAction, ...]:
        """What has to be done about the last of these events."""
        actions: tuple[AttemptAction, ...] = ()
        for event in events:
            self.run, actions = step(self.run, event)
            self.actions.extend(actions)
            check(self.run)
        return actions

    @property
    def ends(self) -> list[RecordEnd]:
        """How it ended: at most one."""
        return [action for action in self.actions if isinstance(action, RecordEnd)]


def attempt(retry: RetryPolicy | None = None, failures: int = 0) -> CheckedAttempt:
    """A new attempt."""
    run = new_run(AttemptFacts(KEY, START, retry or RetryPolicy(), failures))
    check(run)
    return CheckedAttempt(run)


def attempt_in(phase: Phase) -> CheckedAttempt:
    """An attempt in that phase."""
    made = attempt()
    made.take(*PATHS[phase])
    return made
