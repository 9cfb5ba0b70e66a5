"""An attempt that has run for as long as its workload allows."""

from __future__ import annotations

import pytest

from cluster_manager.attempt_run.actions import RecordEnd, RecordLeaving, Stop
from cluster_manager.attempt_run.events import (
    AttemptEvent,
    CancellationNoted,
    Completed,
    Eviction,
    Gone,
    LeaveAsked,
    MachineLost,
    PlaceFreed,
    Started,
    TaskFailed,
)
from domain.events import EvictionCause
from domain.life_cycle import State
from domain.workload import RetryPolicy
from tests.cluster_manager.attempt_run.runs import KEY, START, CheckedAttempt, attempt

OVER = Eviction(EvictionCause.TIME_LIMIT, limit_s=7_200.0)


def stopped() -> CheckedAttempt:
    checked = attempt(RetryPolicy(max_retries=5))
    checked.take(PlaceFreed(0.0), Started(0.0), LeaveAsked(7_200.0, OVER))
    return checked


def end_of(checked: CheckedAttempt) -> RecordEnd:
    (end,) = checked.ends
    return end


def test_it_is_stopped_with_its_grace() -> None:
    assert stopped().actions[-2:] == [RecordLeaving(KEY, OVER), Stop(KEY, 30.0)]


@pytest.mark.parametrize("first", [(), (TaskFailed(7_205.0),)], ids=["saved", "its task ended badly"])
def test_its_workload_fails_for_it_and_is_not_tried_again(first: tuple[AttemptEvent, ...]) -> None:
    checked = stopped()
    checked.take(*first, Gone(7_210.0, START + 100.0, START + 90.0, "it was asked to stop"))
    end = end_of(checked)
    assert (end.end, end.reason, end.next_state) == ("failed", "time limit of 2h reached", State.FAILED)
    assert (end.checkpoint_progress, end.not_before_s) == (START + 90.0, 0.0)


def test_a_machine_that_is_lost_meanwhile_gives_it_no_more_time() -> None:
    checked = stopped()
    assert checked.take(MachineLost(7_205.0)) == (Stop(KEY, 0.0),)
    checked.take(Gone(7_206.0))
    assert end_of(checked).next_state is State.FAILED


def test_what_completes_in_its_grace_has_completed() -> None:
    checked = stopped()
    checked.take(Completed(7_210.0, START + 100.0, START + 100.0))
    assert end_of(checked).next_state is State.COMPLETED


def test_what_is_cancelled_meanwhile_is_cancelled() -> None:
    checked = stopped()
    checked.take(CancellationNoted(7_205.0), Gone(7_210.0))
    assert end_of(checked).next_state is State.CANCELLED


def test_the_cause_is_stored_and_read_again() -> None:
    assert Eviction.from_json(OVER.as_json()) == OVER
    assert OVER.as_json() == {"cause": "time_limit", "limit_s": 7_200.0}
