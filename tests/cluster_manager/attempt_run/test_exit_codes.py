"""An attempt whose task ends with an exit code that its workload names."""

from __future__ import annotations

import pytest

from cluster_manager.attempt_run.events import Gone, PlaceFreed, Started, TaskFailed
from domain.life_cycle import State
from domain.workload import RetryPolicy
from tests.cluster_manager.attempt_run.runs import attempt

RETRY = RetryPolicy(max_retries=3, on_exit_codes=(75,), never_on=(2,))


@pytest.mark.parametrize(("code", "state"), [(75, State.PENDING), (1, State.FAILED), (2, State.FAILED)])
def test_it_is_tried_again_after_the_codes_that_are_named(code: int, state: State) -> None:
    checked = attempt(RETRY)
    checked.take(PlaceFreed(0.0), Started(0.0), TaskFailed(5.0), Gone(6.0, reason="it ended", exit_codes=(code,)))
    (end,) = checked.ends
    assert (end.next_state, end.exit_code, end.failed) == (state, code, True)


def test_what_is_lost_is_always_tried_again() -> None:
    checked = attempt(RETRY)
    checked.take(PlaceFreed(0.0), Started(0.0), Gone(6.0))
    (end,) = checked.ends
    assert (end.next_state, end.exit_code) == (State.PENDING, None)
