"""Where an attempt stands between dispatch and end."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from cluster_manager.attempt_run.events import AttemptEvent, Eviction
from domain.events import EvictionCause
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.workload import DEFAULT_STOP_GRACE_S, RetryPolicy, WorkloadSpecification


class Phase(StrEnum):
    # An Enum hashes its name in Python; as text it is hashed in C.
    __hash__ = str.__hash__

    DISPATCHED = "dispatched"
    """Its place is its own; attempts that have to leave may still be there."""
    STARTING = "starting"
    """Its place is free: containers start, and what was saved is restored."""
    RUNNING = "running"
    """All its base tasks run."""
    LEAVING = "leaving"
    """It was asked to leave and saves its work, if there is any and time for it."""
    BROKEN = "broken"
    """A task failed or was lost by itself: the others are being stopped."""
    ENDED = "ended"
    """Nothing of it runs any more."""


class AttemptFacts(NamedTuple):
    """What is known of an attempt at its dispatch and never changes."""

    key: AttemptKey
    progress_at_start: float
    """Seconds of work that earlier attempts have saved: it goes on from there."""
    retry: RetryPolicy = RetryPolicy()
    failures: int = 0
    """Of the workload, before this attempt."""
    stop_grace_s: float = DEFAULT_STOP_GRACE_S
    """The time to save its work that the workload asks for."""


def facts_of(
    key: AttemptKey, specification: WorkloadSpecification, progress_at_start: float, failures: int
) -> AttemptFacts:
    """What is known of a new attempt of that workload."""
    return AttemptFacts(key, progress_at_start, specification.retry, failures, specification.stop_grace_s)


class AttemptRun(NamedTuple):
    """The state of the machine in `machine.py`; only that changes it, by making another one."""

    facts: AttemptFacts
    phase: Phase
    state: State
    """The workload's, by the life cycle's table."""
    progress: float
    checkpoint_progress: float
    checkpoint_s: float = 0.0
    """When the newest checkpoint was heard of, which may be a moment after it was saved."""
    throughput: float = 0.0
    started_s: float | None = None
    eviction: Eviction | None = None
    cancelled: bool = False
    """The user wants the workload no more."""
    task_failed: bool = False
    history: tuple[AttemptEvent, ...] = ()
    """What led here, oldest first, without mere progress."""

    @property
    def key(self) -> AttemptKey:
        return self.facts.key


def stop_grace_s(run: AttemptRun) -> float:
    """The seconds that it has to save its work once it is stopped; 0 where there is nothing to wait for: a machine under
    it is lost, or something of it has ended badly; or no time: a machine under it should be back with inference."""
    eviction = run.eviction
    at_once = eviction is not None and (eviction.cause is EvictionCause.MACHINE_LOST or eviction.overdue)
    return 0.0 if at_once or run.phase is Phase.BROKEN else run.facts.stop_grace_s


def lost_with_machine(eviction: Eviction | None) -> Eviction:
    """Why it leaves from now on, of which a machine is lost: it stops at once. Where its time limit was reached already, that
    stays the reason: else it would run for another such time."""
    if eviction is not None and eviction.cause is EvictionCause.TIME_LIMIT:
        return eviction._replace(overdue=True)
    return Eviction(EvictionCause.MACHINE_LOST)


def new_run(facts: AttemptFacts) -> AttemptRun:
    """A new attempt: it has its place and waits until that is free."""
    return AttemptRun(facts, Phase.DISPATCHED, State.DISPATCHED, facts.progress_at_start, facts.progress_at_start)


def run_from_record(
    facts: AttemptFacts,
    state: State,
    *,
    progress: float,
    checkpoint_progress: float,
    checkpoint_s: float,
    started_s: float | None,
    eviction: Eviction | None,
) -> AttemptRun:
    """An attempt as it was recorded, after a restart. Raises KeyError when it is not live."""
    phase = {State.DISPATCHED: Phase.DISPATCHED, State.RUNNING: Phase.RUNNING, State.PREEMPTING: Phase.LEAVING}[state]
    return AttemptRun(
        facts,
        phase,
        state,
        progress,
        checkpoint_progress,
        checkpoint_s,
        started_s=started_s,
        eviction=eviction,
        cancelled=eviction is not None and eviction.cause is EvictionCause.CANCELLED,
    )
