"""The table of a machine's life: what is in it, what it refuses, and that nothing in it is out of reach."""

from __future__ import annotations

import itertools

import pytest

from domain.fleet import MachineState
from domain.identifiers import MachineId
from domain.machine_life_cycle import (
    MACHINE_EVENTS,
    MACHINE_TRANSITIONS,
    MachineHappening,
    MachineTransitionRefused,
    machine_rows,
    next_machine_state,
)

M = MachineId("m1")
TRAINING = {MachineState.UP, MachineState.DRAINING, MachineState.DOWN, MachineState.DRAINING_DOWN}
INFERENCE = set(MachineState) - TRAINING
ROWS = """
up              failed       down
draining        failed       draining_down
draining_down   repaired     draining
down            repaired     up
up              drained      draining
down            drained      draining_down
draining        undrained    up
draining_down   undrained    down
serving         lent         on_loan
serving_down    lent         on_loan_down
on_loan         asked_back   returning
on_loan_down    asked_back   returning_down
returning       kept         on_loan
returning_down  kept         on_loan_down
returning       handed_back  serving
returning_down  handed_back  serving_down
serving         failed       serving_down
on_loan         failed       on_loan_down
returning       failed       returning_down
serving_down    repaired     serving
on_loan_down    repaired     on_loan
returning_down  repaired     returning
"""


def test_every_pair_is_listed_or_refused() -> None:
    listed = {(before, happening): after for before, happening, after in map(str.split, ROWS.strip().splitlines())}
    for state, happening in itertools.product(MachineState, MachineHappening):
        after = listed.get((state.value, happening.value))
        if after is not None:
            assert next_machine_state(M, state, happening) is MachineState(after)
            continue
        with pytest.raises(MachineTransitionRefused) as caught:
            next_machine_state(M, state, happening)
        assert str(caught.value).startswith(f"machine m1 is {state}: it cannot be {happening} (it can be: ")


def test_a_refusal_says_what_is_possible() -> None:
    with pytest.raises(
        MachineTransitionRefused,
        match=r"machine m1 is serving: it cannot be drained \(it can be: lent, failed\)",
    ):
        next_machine_state(M, MachineState.SERVING, MachineHappening.DRAINED)


@pytest.mark.parametrize(
    ("begin", "states"), [(MachineState.UP, TRAINING), (MachineState.SERVING, INFERENCE)], ids=["training", "inference"]
)
def test_every_state_is_reached_and_no_machine_changes_sides(begin: MachineState, states: set[MachineState]) -> None:
    reached = {begin}
    while more := {after for (before, _), after in MACHINE_TRANSITIONS.items() if before in reached} - reached:
        reached |= more
    assert reached == states


def test_a_machine_takes_work_only_where_training_has_it_and_it_works() -> None:
    assert {state for state in MachineState if state.takes_work} == {MachineState.UP, MachineState.ON_LOAN}
    for state in MachineState:
        assert not (state.is_down and state.counts_for_training)
        assert state.counts_for_training or not state.takes_work
        assert state.is_down == state.value.endswith("down")
    serving = {MachineState.SERVING, MachineState.SERVING_DOWN}
    assert not any(state.counts_for_training for state in serving)
    assert {state for state in MachineState if state.is_lent} == INFERENCE - serving


def test_what_happens_is_an_event_or_is_seen_by_the_attempts() -> None:
    assert set(MachineHappening) - set(MACHINE_EVENTS) == {MachineHappening.ASKED_BACK, MachineHappening.KEPT}


def test_the_rows_of_a_happening_are_those_of_the_table() -> None:
    rows = [(before, what, after) for what in MachineHappening for before, after in machine_rows(what)]
    assert len(rows) == len(MACHINE_TRANSITIONS)
    assert {(before, what): after for before, what, after in rows} == dict(MACHINE_TRANSITIONS)
