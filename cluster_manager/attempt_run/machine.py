"""The run of an attempt as one state machine: an event in, the attempt's next state and what has to be done out.

Rule 1: whatever an attempt goes through stands in the table below; nothing else changes an `AttemptRun`. Rule 2: the
machine does not know who drives it. The regional scheduler feeds it what all of a gang's clusters have reported, the
simulator what its event queue says; both carry out the same actions, each in its own way.

Progress alone changes no phase; of what is reported late only what is more than before counts, so that nothing ever
goes back. Actions are in the order in which they are to be done. What an action records counts from then on: where
recording can fail, the caller keeps the old state until it has not.

Invariants: an attempt ends once (I8); progress is at most what was reported, and a checkpoint at most the progress
(I9); the workload's state changes by the table in `domain.life_cycle` alone. `check` in `invariants.py` states them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TypeAlias, assert_never

from cluster_manager.attempt_run.actions import (
    AttemptAction,
    GoOnWithout,
    RecordCheckpoint,
    RecordEnd,
    RecordLeaving,
    RecordProgress,
    RecordSizes,
    RecordStart,
    SetUp,
    Stop,
)
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
from cluster_manager.attempt_run.run import AttemptFacts, AttemptRun, Phase, lost_with_machine, stop_grace_s
from domain.events import EvictionCause
from domain.life_cycle import Happening, State, next_state
from domain.time_limit import time_limit_sentence

Step: TypeAlias = tuple[AttemptRun, tuple[AttemptAction, ...]]

TABLE: MappingProxyType[tuple[Phase, type[AttemptEvent]], Phase] = MappingProxyType(
    {
        # Everything that had to leave its machines has left (the region sees to that).
        (Phase.DISPATCHED, PlaceFreed): Phase.STARTING,
        # All clusters report the gang started. After a restart of the region this can be the first that it hears.
        (Phase.STARTING, Started): Phase.RUNNING,
        (Phase.DISPATCHED, Started): Phase.RUNNING,
        # Told again on every new connection.
        (Phase.RUNNING, Started): Phase.RUNNING,
        # The start and the order to stop crossed each other.
        (Phase.LEAVING, Started): Phase.LEAVING,
        (Phase.BROKEN, Started): Phase.BROKEN,
        # Reports of its clusters; of a gang in several clusters one may be ahead of the start of the whole.
        (Phase.DISPATCHED, Progressed): Phase.DISPATCHED,
        (Phase.STARTING, Progressed): Phase.STARTING,
        (Phase.RUNNING, Progressed): Phase.RUNNING,
        (Phase.LEAVING, Progressed): Phase.LEAVING,
        (Phase.BROKEN, Progressed): Phase.BROKEN,
        (Phase.DISPATCHED, CheckpointSaved): Phase.DISPATCHED,
        (Phase.STARTING, CheckpointSaved): Phase.STARTING,
        (Phase.RUNNING, CheckpointSaved): Phase.RUNNING,
        (Phase.LEAVING, CheckpointSaved): Phase.LEAVING,
        (Phase.BROKEN, CheckpointSaved): Phase.BROKEN,
        # A plan gave it other placements, and its clusters have taken them over.
        (Phase.RUNNING, Resized): Phase.RUNNING,
        # A better workload, a drain, a reclaim, a cancellation or its time limit wants it to stop.
        (Phase.DISPATCHED, LeaveAsked): Phase.LEAVING,
        (Phase.STARTING, LeaveAsked): Phase.LEAVING,
        (Phase.RUNNING, LeaveAsked): Phase.LEAVING,
        (Phase.BROKEN, LeaveAsked): Phase.LEAVING,
        # A machine under it is lost; one that is saving its work loses that too.
        (Phase.DISPATCHED, MachineLost): Phase.LEAVING,
        (Phase.STARTING, MachineLost): Phase.LEAVING,
        (Phase.RUNNING, MachineLost): Phase.LEAVING,
        (Phase.LEAVING, MachineLost): Phase.LEAVING,
        (Phase.BROKEN, MachineLost): Phase.LEAVING,
        # What is on a machine that should be back with inference is stopped at once (regional scheduler).
        (Phase.LEAVING, GraceOver): Phase.LEAVING,
        # The user cancelled while it was live: asked to leave for it, or found out when its end is recorded.
        (Phase.DISPATCHED, CancellationNoted): Phase.DISPATCHED,
        (Phase.STARTING, CancellationNoted): Phase.STARTING,
        (Phase.RUNNING, CancellationNoted): Phase.RUNNING,
        (Phase.LEAVING, CancellationNoted): Phase.LEAVING,
        (Phase.BROKEN, CancellationNoted): Phase.BROKEN,
        # A cluster reports a task that failed, or that it cannot find any more, before all the others have ended.
        (Phase.DISPATCHED, TaskFailed): Phase.BROKEN,
        (Phase.STARTING, TaskFailed): Phase.BROKEN,
        (Phase.RUNNING, TaskFailed): Phase.BROKEN,
        (Phase.LEAVING, TaskFailed): Phase.LEAVING,
        (Phase.BROKEN, TaskFailed): Phase.BROKEN,
        (Phase.DISPATCHED, TaskLost): Phase.BROKEN,
        (Phase.STARTING, TaskLost): Phase.BROKEN,
        (Phase.RUNNING, TaskLost): Phase.BROKEN,
        (Phase.LEAVING, TaskLost): Phase.LEAVING,
        (Phase.BROKEN, TaskLost): Phase.BROKEN,
        # What is lost are flexible tasks only. One that does not run as a whole yet cannot go on without them.
        (Phase.DISPATCHED, FlexibleTasksLost): Phase.BROKEN,
        (Phase.STARTING, FlexibleTasksLost): Phase.BROKEN,
        (Phase.RUNNING, FlexibleTasksLost): Phase.RUNNING,
        (Phase.LEAVING, FlexibleTasksLost): Phase.LEAVING,
        (Phase.BROKEN, FlexibleTasksLost): Phase.BROKEN,
        # All clusters report it completed; short work may be done before anyone heard of its start, or of its stop.
        (Phase.DISPATCHED, Completed): Phase.ENDED,
        (Phase.STARTING, Completed): Phase.ENDED,
        (Phase.RUNNING, Completed): Phase.ENDED,
        (Phase.LEAVING, Completed): Phase.ENDED,
        # What was given up for lost was found again, and had completed.
        (Phase.BROKEN, Completed): Phase.ENDED,
        # All clusters report it ended, in whatever way; or no cluster ever heard of it.
        (Phase.DISPATCHED, Gone): Phase.ENDED,
        (Phase.STARTING, Gone): Phase.ENDED,
        (Phase.RUNNING, Gone): Phase.ENDED,
        (Phase.LEAVING, Gone): Phase.ENDED,
        (Phase.BROKEN, Gone): Phase.ENDED,
        # Reports that were on their way when it ended: they change nothing.
        (Phase.ENDED, Started): Phase.ENDED,
        (Phase.ENDED, Progressed): Phase.ENDED,
        (Phase.ENDED, CheckpointSaved): Phase.ENDED,
        (Phase.ENDED, TaskFailed): Phase.ENDED,
        (Phase.ENDED, TaskLost): Phase.ENDED,
        (Phase.ENDED, FlexibleTasksLost): Phase.ENDED,
        (Phase.ENDED, Completed): Phase.ENDED,
        (Phase.ENDED, Gone): Phase.ENDED,
    }
)


class EventRefused(Exception):
    """The table has no such row: who drives the machine is wrong about the attempt. Tells its history."""

    def __init__(self, run: AttemptRun, event: AttemptEvent) -> None:
        self.run = run
        self.event = event
        history = "; ".join(repr(earlier) for earlier in run.history) or "nothing since its dispatch"
        key = run.key
        super().__init__(
            f"attempt {key.attempt} of {key.workload} is {run.phase}: {event!r} cannot happen to it (history: {history})"
        )


def step(run: AttemptRun, event: AttemptEvent) -> Step:
    """The attempt after this event, and what has to be done about it. Raises EventRefused, and changes nothing then."""
    try:
        phase = TABLE[run.phase, type(event)]
    except KeyError:
        raise EventRefused(run, event) from None
    if run.phase is Phase.ENDED:
        return run, ()
    match event:
        case PlaceFreed():
            return _place_freed(run, event, phase)
        case Started():
            return _start(run, event, phase)
        case Completed():
            return _end(run, event, "completed")
        case LeaveAsked():
            return _leave(run, event, event.eviction, phase)
        case Gone():
            return _end(run, event, _ended_as(run))
        case MachineLost():
            return _leave(run, event, lost_with_machine(run.eviction), phase)
        case GraceOver():
            eviction = run.eviction or Eviction(EvictionCause.RECLAIMED)
            return _leave(run, event, eviction._replace(overdue=True), phase)
        case Progressed():
            progress, saved = _reached(run, event)
            advanced = run._replace(progress=progress, checkpoint_progress=saved, throughput=event.throughput)
            return advanced, (RecordProgress(run.key, progress, saved, event.throughput),)
        case CheckpointSaved():
            return _save(run, event)
        case CancellationNoted():
            return run._replace(cancelled=True, history=(*run.history, event)), ()
        case TaskFailed():
            return _break(run, event, phase, failed=True)
        case TaskLost():
            return _break(run, event, phase, failed=False)
        case FlexibleTasksLost():
            if phase is Phase.RUNNING:
                earlier = run.history
                # As of resizes, the last is kept: a program may be killed again and again.
                while earlier and isinstance(earlier[-1], FlexibleTasksLost | Resized):
                    earlier = earlier[:-1]
                return run._replace(history=(*earlier, event)), (GoOnWithout(run.key, event.tasks),)
            return _break(run, event, phase, failed=False)
        case Resized():
            # Of one resize after the other the last is kept: there may be one in every round.
            earlier = run.history[:-1] if run.history and isinstance(run.history[-1], Resized) else run.history
            return run._replace(history=(*earlier, event)), (RecordSizes(run.key, event.placements),)
        case _:
            assert_never(event)


# The three steps that every attempt takes make their states without `_replace`, which costs four times as much: for
# simulations of many attempts these steps are a good part of all work.


def _place_freed(run: AttemptRun, event: PlaceFreed, phase: Phase) -> Step:
    facts, _, state, progress, saved, saved_s, throughput, started_s, eviction, cancelled, failed, history = run
    history = (*history, event)
    moved = AttemptRun(
        facts, phase, state, progress, saved, saved_s, throughput, started_s, eviction, cancelled, failed, history
    )
    return moved, (SetUp(facts.key, facts.progress_at_start),)


def _reached(run: AttemptRun, event: Progressed | Completed | Gone) -> tuple[float, float]:
    """Progress and checkpoint after the event: nothing goes back, and what is saved was reached."""
    saved = max(run.checkpoint_progress, event.checkpoint_progress)
    return max(run.progress, event.progress, saved), saved


def _start(run: AttemptRun, event: Started, phase: Phase) -> Step:
    facts, _, state, progress, saved, saved_s, throughput, started_s, eviction, cancelled, failed, history = run
    if started_s is not None:
        return run, ()
    started_s = event.at_s
    if state is State.DISPATCHED:
        state = next_state(facts.key.workload, state, Happening.STARTED)
    history = (*history, event)
    moved = AttemptRun(
        facts, phase, state, progress, saved, saved_s, throughput, started_s, eviction, cancelled, failed, history
    )
    return moved, (RecordStart(facts.key, started_s),)


def _save(run: AttemptRun, event: CheckpointSaved) -> Step:
    if event.progress <= run.checkpoint_progress:
        return run, ()
    progress = max(run.progress, event.progress)
    # As at the end: clocks may be set back.
    saved_s = max(run.checkpoint_s, event.at_s, run.started_s or 0.0)
    saved = run._replace(progress=progress, checkpoint_progress=event.progress, checkpoint_s=saved_s)
    return saved, (RecordCheckpoint(run.key, event.progress, saved_s),)


def _leave(run: AttemptRun, event: LeaveAsked | MachineLost | GraceOver, eviction: Eviction, phase: Phase) -> Step:
    """It leaves from now on; one that is leaving or broken is being stopped already."""
    cancelled = run.cancelled or eviction.cause is EvictionCause.CANCELLED
    moved = run._replace(phase=phase, eviction=eviction, cancelled=cancelled, history=(*run.history, event))
    if run.phase is Phase.LEAVING:
        return moved, (Stop(run.key, stop_grace_s(moved)),)
    moved = moved._replace(state=next_state(run.key.workload, run.state, Happening.EVICTION_BEGAN))
    leaving = RecordLeaving(run.key, eviction)
    if run.phase is Phase.BROKEN:
        return moved, (leaving,)
    return moved, (leaving, Stop(run.key, stop_grace_s(moved)))


def _break(run: AttemptRun, event: TaskFailed | TaskLost | FlexibleTasksLost, phase: Phase, *, failed: bool) -> Step:
    """The others are stopped, unless they are being stopped already."""
    task_failed = run.task_failed or failed
    if run.phase is phase and task_failed == run.task_failed:
        return run, ()
    moved = run._replace(phase=phase, task_failed=task_failed, history=(*run.history, event))
    return moved, () if run.phase is phase else (Stop(run.key, stop_grace_s(moved)),)


def _ended_as(run: AttemptRun) -> str:
    """How it ended that has not completed: cancelled or failed, or for what it had to leave, or lost by itself."""
    if run.cancelled:
        return "cancelled"
    if run.eviction is not None and run.eviction.cause is EvictionCause.TIME_LIMIT:
        # Whatever its tasks made of being stopped: it is not tried again.
        return EvictionCause.TIME_LIMIT.value
    if run.task_failed:
        return "failed"
    return "lost" if run.eviction is None else run.eviction.cause.value


def _end(run: AttemptRun, event: Completed | Gone, ended_as: str) -> Step:
    """The end, with what becomes of the workload. Its own time never goes back, whatever other clocks say."""
    facts, _, state, reached, saved, saved_s, _, started_s, eviction, cancelled, failed, history = run
    ended_s = max(saved_s, event.at_s, started_s or 0.0)
    exit_codes = event.exit_codes if ended_as == "failed" and isinstance(event, Gone) else ()
    happening, not_before_s = _becomes(facts, ended_as, ended_s, exit_codes)
    state = next_state(facts.key.workload, state, happening)
    if event.progress > reached or event.checkpoint_progress > saved:
        reached, saved = _reached(run, event)
    told_as = "failed" if ended_as in ("lost", EvictionCause.TIME_LIMIT) else ended_as
    counts, reason = ended_as == "failed", event.reason
    if ended_as == EvictionCause.TIME_LIMIT and eviction is not None and eviction.limit_s is not None:
        reason = time_limit_sentence(eviction.limit_s)
    end = RecordEnd(facts.key, told_as, reason, ended_s, reached, saved, state, counts, not_before_s)
    if exit_codes:
        end = end._replace(exit_code=exit_codes[0])
    history = (*history, event)
    ended = AttemptRun(
        facts, Phase.ENDED, state, reached, saved, saved_s, 0.0, started_s, eviction, cancelled, failed, history
    )
    return ended, (end,)


def _becomes(
    facts: AttemptFacts, ended_as: str, ended_s: float, exit_codes: tuple[int, ...]
) -> tuple[Happening, float]:
    """What happens to the workload at the end of its attempt, and before when it is not tried again."""
    retry, failures = facts.retry, facts.failures + 1
    match ended_as:
        case "completed":
            return Happening.COMPLETED, 0.0
        case "cancelled":
            return Happening.CANCELLED, 0.0
        case "lost":
            # A failure, but none of the user's: it is always tried again, after a while in which a machine that is
            # about to be reported lost is.
            return Happening.ATTEMPT_FAILED, ended_s + retry.wait_s(1)
        case EvictionCause.TIME_LIMIT:
            return Happening.FAILED, 0.0
        case "failed" if not retry.tries_again(failures, exit_codes):
            return Happening.FAILED, 0.0
        case "failed":
            return Happening.ATTEMPT_FAILED, ended_s + retry.wait_s(failures)
        case _:
            return Happening.EVICTED, 0.0
