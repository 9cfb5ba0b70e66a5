"""What happens to an attempt, and what has to be done about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from cluster_manager.attempt_run.actions import (
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
from cluster_manager.attempt_run.invariants import BrokenRun, check
from cluster_manager.attempt_run.machine import TABLE, EventRefused, step
from cluster_manager.attempt_run.run import Phase
from domain.events import EvictionCause
from domain.identifiers import JobName
from domain.life_cycle import State
from domain.plan import TaskName
from domain.workload import RetryPolicy
from tests.cluster_manager.attempt_run.runs import EVERY_EVENT, KEY, PREEMPTED, START, CheckedAttempt, attempt_in

NewAttempt = Callable[..., CheckedAttempt]


def end_of(checked: CheckedAttempt) -> RecordEnd:
    (end,) = checked.ends
    return end


# The table.


def test_one_event_of_every_kind_is_tried() -> None:
    assert {event for _, event in TABLE} == {type(event) for event in EVERY_EVENT}


@pytest.mark.parametrize(
    ("phase", "event"),
    list(product(Phase, EVERY_EVENT)),
    ids=[f"{phase}-{type(event).__name__}" for phase, event in product(Phase, EVERY_EVENT)],
)
def test_every_pair_is_listed_and_leads_where_the_table_says_or_is_refused(phase: Phase, event: AttemptEvent) -> None:
    checked = attempt_in(phase)
    before = checked.run
    if (phase, type(event)) in TABLE:
        checked.take(event)
        assert checked.run.phase is TABLE[phase, type(event)]
    else:
        with pytest.raises(EventRefused, match=type(event).__name__):
            checked.take(event)
        assert checked.run is before


def test_every_phase_is_reached_and_from_every_phase_the_end() -> None:
    reached = {Phase.DISPATCHED}
    for _ in Phase:
        reached |= {after for (before, _), after in TABLE.items() if before in reached}
    assert reached == set(Phase)
    assert {before for (before, _), after in TABLE.items() if after is Phase.ENDED} == set(Phase)


def test_an_event_that_is_refused_says_what_happened_before(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(1.0), Started(2.0), Progressed(3.0, START + 1.0, START))
    with pytest.raises(EventRefused) as refused:
        checked.take(PlaceFreed(9.0))
    assert str(refused.value) == (
        "attempt 2 of w1 is running: PlaceFreed(at_s=9.0) cannot happen to it "
        "(history: PlaceFreed(at_s=1.0); Started(at_s=2.0))"
    )


def test_the_drawing_shows_the_table() -> None:
    text = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = text.partition("```mermaid\nstateDiagram-v2\n    [*] --> dispatched\n")[2].partition("```")[0]
    assert drawn == drawing(), "docs/architecture.md draws another run of an attempt than attempt_run/machine.py"


def drawing() -> str:
    """One line for each change of phase, with the events that cause it; events that change no phase are left out."""
    causes: dict[tuple[Phase, Phase], list[str]] = {}
    for (before, event), after in TABLE.items():
        if before is not after:
            causes.setdefault((before, after), []).append(re.sub(r"(?<!^)(?=[A-Z])", " ", event.__name__).lower())
    return "".join(f"    {before} --> {after}: {', '.join(why)}\n" for (before, after), why in causes.items())


# A run without disturbance.


def test_it_is_set_up_when_its_place_is_free_and_ends_when_it_has_completed(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    assert checked.take(PlaceFreed(5.0)) == (SetUp(KEY, START),)
    assert checked.take(Started(8.0)) == (RecordStart(KEY, 8.0),)
    assert checked.take(Completed(68.0, START + 60.0, START + 60.0)) == (
        RecordEnd(KEY, "completed", "", 68.0, START + 60.0, START + 60.0, State.COMPLETED),
    )


def test_a_start_that_is_told_again_changes_nothing(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(5.0), Started(8.0))
    before = checked.run
    assert checked.take(Started(9.0)) == ()
    assert checked.run is before


def test_progress_and_checkpoints_never_go_back(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0))
    assert checked.take(Progressed(10.0, START + 10.0, START + 5.0, 2.0)) == (
        RecordProgress(KEY, START + 10.0, START + 5.0, 2.0),
    )
    assert checked.take(Progressed(11.0, START + 7.0, START, 1.0)) == (
        RecordProgress(KEY, START + 10.0, START + 5.0, 1.0),
    )
    assert checked.take(CheckpointSaved(12.0, START + 8.0)) == (RecordCheckpoint(KEY, START + 8.0, 12.0),)
    assert checked.take(CheckpointSaved(13.0, START + 8.0)) == ()


def test_a_checkpoint_beyond_the_progress_that_was_reported_counts_as_progress(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0), CheckpointSaved(5.0, START + 9.0))
    assert checked.run.progress == START + 9.0


def test_a_resize_is_recorded_while_it_runs(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0))
    assert checked.take(Resized(4.0, ())) == (RecordSizes(KEY, ()),)
    assert checked.run.phase is Phase.RUNNING


def test_a_history_does_not_grow_with_every_resize(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0))
    for number in range(5):
        checked.take(Resized(4.0 + number, ()))
    assert checked.run.history == (PlaceFreed(0.0), Started(0.0), Resized(8.0, ()))


def test_a_history_does_not_grow_with_every_task_that_is_lost(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0))
    for number in range(5):
        checked.take(FlexibleTasksLost(4.0 + number, ()), Resized(4.0 + number, ()))
    assert checked.run.history[2:] == (FlexibleTasksLost(8.0, ()), Resized(8.0, ()))


# Leaving.


def test_a_victim_is_stopped_with_time_to_save_and_returns_to_the_queue_with_what_it_saved(
    new_attempt: NewAttempt,
) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0))
    assert checked.take(LeaveAsked(30.0, PREEMPTED)) == (RecordLeaving(KEY, PREEMPTED), Stop(KEY, grace_s=30.0))
    assert checked.run.state is State.PREEMPTING
    checked.take(Gone(35.0, START + 30.0, START + 30.0, "it was asked to stop"))
    assert end_of(checked) == RecordEnd(
        KEY,
        "preempted",
        "it was asked to stop",
        35.0,
        START + 30.0,
        START + 30.0,
        State.PENDING,
    )


def test_a_victim_that_completes_before_it_has_stopped_has_completed(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0), LeaveAsked(30.0, PREEMPTED), Completed(31.0))
    assert (end_of(checked).end, end_of(checked).next_state) == ("completed", State.COMPLETED)


def test_the_start_of_a_victim_that_crossed_the_order_to_stop_is_recorded(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), LeaveAsked(1.0, PREEMPTED))
    assert checked.take(Started(2.0)) == (RecordStart(KEY, 2.0),)
    assert (checked.run.phase, checked.run.state) == (Phase.LEAVING, State.PREEMPTING)


def test_with_its_machine_it_loses_what_was_not_saved_and_has_no_time_to_save_it(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0))
    lost = Eviction(EvictionCause.MACHINE_LOST)
    assert checked.take(MachineLost(30.0)) == (RecordLeaving(KEY, lost), Stop(KEY, grace_s=0.0))
    checked.take(Gone(30.0, START + 30.0, START + 20.0))
    assert (end_of(checked).end, end_of(checked).checkpoint_progress) == ("machine_lost", START + 20.0)


def test_who_is_on_a_machine_that_should_be_back_has_no_more_time(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    reclaimed = Eviction(EvictionCause.RECLAIMED)
    checked.take(PlaceFreed(0.0), Started(0.0), LeaveAsked(30.0, reclaimed))
    assert checked.take(GraceOver(31.0)) == (Stop(KEY, grace_s=0.0),), "it is recorded as leaving already"
    assert Eviction.from_json(reclaimed._replace(overdue=True).as_json()) == reclaimed._replace(overdue=True)
    checked.take(Gone(31.0))
    assert (end_of(checked).end, end_of(checked).next_state) == ("reclaimed", State.PENDING)


def test_a_machine_that_is_lost_under_a_victim_is_why_it_ended(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0), LeaveAsked(30.0, PREEMPTED))
    assert checked.take(MachineLost(31.0)) == (Stop(KEY, grace_s=0.0),), "it is recorded as leaving already"
    checked.take(Gone(31.0))
    assert (end_of(checked).end, end_of(checked).next_state) == ("machine_lost", State.PENDING)


def test_an_attempt_that_no_cluster_has_heard_of_ends_at_once(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(LeaveAsked(7.0, PREEMPTED), Gone(7.0, reason="before it was started"))
    assert (end_of(checked).end, end_of(checked).progress, end_of(checked).ended_s) == ("preempted", START, 7.0)


# Failing.


def test_when_a_task_fails_the_others_are_stopped_once_and_the_attempt_has_failed(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0))
    assert checked.take(TaskFailed(9.0)) == (Stop(KEY, grace_s=0.0),)
    assert checked.take(TaskFailed(10.0)) == ()
    checked.take(Gone(11.0, reason="exit code 1"))
    end = end_of(checked)
    assert (end.end, end.next_state, end.reason, end.failed) == ("failed", State.FAILED, "exit code 1", True)


def test_a_failed_attempt_waits_longer_with_each_failure_until_no_retry_is_left(new_attempt: NewAttempt) -> None:
    retry = RetryPolicy(max_retries=2, backoff_s=10.0, backoff_cap_s=600.0)
    waits = []
    for failures in range(3):
        checked = new_attempt(retry=retry, failures=failures)
        checked.take(PlaceFreed(0.0), Started(0.0), TaskFailed(50.0), Gone(50.0))
        waits.append((end_of(checked).next_state, end_of(checked).not_before_s))
    assert waits == [(State.PENDING, 60.0), (State.PENDING, 70.0), (State.FAILED, 0.0)]


def test_an_attempt_that_is_lost_alone_is_tried_again_after_a_while_and_no_failure_of_the_user(
    new_attempt: NewAttempt,
) -> None:
    checked = new_attempt(retry=RetryPolicy(max_retries=0, backoff_s=10.0))
    checked.take(PlaceFreed(0.0), Started(0.0), TaskLost(50.0), Gone(50.0, reason="its runner is gone"))
    end = end_of(checked)
    assert (end.end, end.next_state, end.failed, end.not_before_s) == ("failed", State.PENDING, False, 60.0)


def test_a_broken_attempt_that_has_to_leave_is_not_stopped_again(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0), TaskLost(9.0))
    assert checked.take(LeaveAsked(10.0, PREEMPTED)) == (RecordLeaving(KEY, PREEMPTED),)
    checked.take(Gone(11.0))
    assert end_of(checked).end == "preempted", "it was asked to leave before it was known to have ended"


@pytest.mark.parametrize(
    ("events", "ended_as", "next_state"),
    [
        ((Completed(9.0),), "completed", State.COMPLETED),
        ((TaskFailed(9.0), Gone(9.0)), "cancelled", State.CANCELLED),
        ((TaskLost(9.0), Gone(9.0)), "cancelled", State.CANCELLED),
        ((LeaveAsked(8.0, PREEMPTED), Gone(9.0)), "cancelled", State.CANCELLED),
    ],
    ids=["completed", "failed", "lost", "victim"],
)
def test_what_its_user_cancelled_does_not_run_again(
    new_attempt: NewAttempt, events: tuple[AttemptEvent, ...], ended_as: str, next_state: State
) -> None:
    checked = new_attempt(retry=RetryPolicy(max_retries=9))
    checked.take(PlaceFreed(0.0), Started(0.0), CancellationNoted(5.0), *events)
    assert (end_of(checked).end, end_of(checked).next_state) == (ended_as, next_state)


def test_an_end_never_lies_before_a_checkpoint_that_was_heard_of(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(0.0), Started(0.0), CheckpointSaved(20.0, START + 8.0), Completed(19.0))
    assert end_of(checked).ended_s == 20.0


def test_a_clock_that_is_set_back_never_has_an_attempt_end_before_it_began(new_attempt: NewAttempt) -> None:
    checked = new_attempt()
    checked.take(PlaceFreed(100.0), Started(100.0), CheckpointSaved(40.0, START + 8.0), Completed(41.0))
    (checkpoint,) = (action for action in checked.actions if isinstance(action, RecordCheckpoint))
    assert (checkpoint.saved_s, end_of(checked).ended_s) == (100.0, 100.0)


# The check of the invariants.


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": State.PENDING},
        {"progress": START + 1.0, "checkpoint_progress": START + 2.0},
        {"checkpoint_progress": START - 1.0},
        {"started_s": None},
        {"eviction": PREEMPTED},
    ],
    ids=["state", "checkpoint beyond progress", "checkpoint before start", "never started", "not leaving"],
)
def test_the_check_finds_a_run_that_contradicts_itself(wrong: dict[str, object]) -> None:
    run = attempt_in(Phase.RUNNING).run
    check(run)
    with pytest.raises(BrokenRun):
        check(run._replace(**wrong))  # type: ignore[arg-type]  # named fields of the run


def test_a_step_leaves_the_attempt_before_it_as_it_was() -> None:
    run = attempt_in(Phase.RUNNING).run
    copy = run._replace()
    step(run, LeaveAsked(3.0, PREEMPTED))
    assert run == copy


def test_a_running_attempt_goes_on_without_flexible_tasks() -> None:
    lost = (TaskName(JobName("train"), 2),)
    checked = attempt_in(Phase.RUNNING)
    assert checked.take(FlexibleTasksLost(5.0, lost)) == (GoOnWithout(KEY, lost),)
    assert checked.run.phase is Phase.RUNNING
    assert not checked.run.task_failed
    for phase in (Phase.LEAVING, Phase.BROKEN, Phase.ENDED):
        assert attempt_in(phase).take(FlexibleTasksLost(5.0, lost)) == ()


def test_one_that_does_not_run_as_a_whole_yet_is_broken_by_any_loss() -> None:
    checked = attempt_in(Phase.STARTING)
    assert checked.take(FlexibleTasksLost(5.0, (TaskName(JobName("train"), 2),))) == (Stop(KEY, 0.0),)
    checked.take(Gone(6.0))
    assert end_of(checked).next_state is State.PENDING
    assert not end_of(checked).failed
