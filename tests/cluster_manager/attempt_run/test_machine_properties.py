"""Whatever happens to an attempt, in whatever order: it ends once, and its progress is what was reported."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.attempt_run.actions import RecordEnd
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
    Started,
    TaskFailed,
    TaskLost,
)
from cluster_manager.attempt_run.machine import TABLE, EventRefused, step
from cluster_manager.attempt_run.run import AttemptRun, Phase
from domain.events import EvictionCause
from domain.identifiers import JobName
from domain.life_cycle import LIVE, TRANSITIONS, State, state_changes
from domain.plan import TaskName
from domain.workload import RetryPolicy
from tests.cluster_manager.attempt_run.runs import EVERY_EVENT, START, CheckedAttempt, attempt

TIMES_S = st.floats(0.0, 1e6)
AMOUNTS = st.floats(0.0, 1e6)
BARE: tuple[Callable[[float], AttemptEvent], ...] = (
    PlaceFreed,
    Started,
    MachineLost,
    GraceOver,
    CancellationNoted,
    TaskFailed,
    TaskLost,
)
REPORTS = (Started, Progressed, CheckpointSaved, TaskFailed, TaskLost, FlexibleTasksLost, Completed, Gone)


def events() -> st.SearchStrategy[AttemptEvent]:
    """Any event, as wrong as it may be."""
    return st.one_of(
        st.builds(lambda make, at_s: make(at_s), st.sampled_from(BARE), TIMES_S),
        st.builds(LeaveAsked, TIMES_S, st.sampled_from(EvictionCause).map(Eviction)),
        st.builds(FlexibleTasksLost, TIMES_S, st.just((TaskName(JobName("train"), 2),))),
        st.builds(Progressed, TIMES_S, AMOUNTS, AMOUNTS, AMOUNTS),
        st.builds(CheckpointSaved, TIMES_S, AMOUNTS),
        st.builds(Completed, TIMES_S, AMOUNTS, AMOUNTS),
        st.builds(Gone, TIMES_S, AMOUNTS, AMOUNTS),
    )


def take_what_is_listed(checked: CheckedAttempt, course: list[AttemptEvent]) -> list[AttemptEvent]:
    """Feeds it everything; returns what was not refused."""
    taken = []
    for event in course:
        try:
            checked.take(event)
        except EventRefused:
            assert (checked.run.phase, type(event)) not in TABLE
        else:
            taken.append(event)
    return taken


@given(st.lists(events(), max_size=30), st.integers(0, 2))
def test_never_does_an_attempt_end_twice(course: list[AttemptEvent], max_retries: int) -> None:
    checked = attempt(RetryPolicy(max_retries))
    take_what_is_listed(checked, course)
    assert len(checked.ends) == (checked.run.phase is Phase.ENDED)
    for end in checked.ends:
        assert isinstance(checked.actions[-1], RecordEnd), "after its end there is nothing to be done"
        assert end.next_state is checked.run.state


@given(st.lists(events(), max_size=30))
def test_never_is_progress_invented(course: list[AttemptEvent]) -> None:
    checked = attempt()
    taken = take_what_is_listed(checked, course)
    reached = [event.progress for event in taken if isinstance(event, Progressed | CheckpointSaved | Completed | Gone)]
    saved = [event.checkpoint_progress for event in taken if isinstance(event, Progressed | Completed | Gone)]
    saved += [event.progress for event in taken if isinstance(event, CheckpointSaved)]
    assert checked.run.progress <= max([START, *reached, *saved])
    assert checked.run.checkpoint_progress <= max([START, *saved])
    for end in checked.ends:
        assert START <= end.checkpoint_progress <= end.progress


@given(st.lists(events(), max_size=20), st.lists(events().filter(lambda event: isinstance(event, REPORTS)), min_size=1))
def test_never_does_a_report_change_what_has_ended(course: list[AttemptEvent], late: list[AttemptEvent]) -> None:
    checked = attempt()
    take_what_is_listed(checked, [*course, Gone(1e6)])
    ended = checked.run
    assert ended.phase is Phase.ENDED
    assert checked.take(*late) == ()
    assert checked.run is ended


@given(st.lists(events(), max_size=30))
def test_never_does_the_workload_leave_its_own_table(course: list[AttemptEvent]) -> None:
    checked = attempt()
    for event in course:
        before = checked.run.state
        take_what_is_listed(checked, [event])
        after = checked.run.state
        direct = {state for (state, _), state_after in TRANSITIONS.items() if state_after is after}
        assert after is before or before in direct
        assert (after in LIVE) == (checked.run.phase is not Phase.ENDED)


def test_never_is_there_a_row_in_the_table_of_live_workloads_that_the_machine_does_not_cause() -> None:
    caused, seen, ways = set[tuple[State, State]](), set[AttemptRun](), [attempt().run, attempt(RetryPolicy(1)).run]
    while ways:
        run = ways.pop()
        # What happened before and how far it is decide nothing here.
        position = run._replace(history=(), progress=0.0, checkpoint_progress=0.0, checkpoint_s=0.0, started_s=None)
        if position in seen:
            continue
        seen.add(position)
        for event in EVERY_EVENT:
            if (run.phase, type(event)) in TABLE:
                after, _ = step(run, event)
                ways.append(after)
                if after.state is not run.state:
                    caused.add((run.state, after.state))
    assert caused == set(state_changes(LIVE))


@given(st.lists(events(), max_size=30))
def test_never_do_the_same_events_give_other_actions(course: list[AttemptEvent]) -> None:
    first, second = attempt(), attempt()
    take_what_is_listed(first, course)
    take_what_is_listed(second, course)
    assert first == second
