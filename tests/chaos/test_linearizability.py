"""The checker of client histories finds what cannot have been, and nothing else: histories made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.chaos.driver.history import NEVER_S, Kind, Operation, operations_of, read_history
from tests.chaos.driver.linearizability import Seen, check, check_workload, outcomes


def submitted(
    number: str, called_s: float, returned_s: float, *, existed: bool = False, workload: str = "w1"
) -> Operation:
    return Operation(number, "k", Kind.SUBMIT, called_s, returned_s, workload=workload, existed=existed)


def unanswered(number: str, kind: Kind, called_s: float) -> Operation:
    return Operation(number, "k", kind, called_s)


def looked(number: str, called_s: float, returned_s: float, state: str, attempts: int = 0) -> Operation:
    return Operation(number, "k", Kind.GET, called_s, returned_s, state=state, attempts=attempts)


def not_found(number: str, called_s: float, returned_s: float) -> Operation:
    return Operation(number, "k", Kind.GET, called_s, returned_s, found=False)


def cancelled(number: str, called_s: float, returned_s: float, state: str = "CANCELLED") -> Operation:
    return Operation(number, "k", Kind.CANCEL, called_s, returned_s, state=state)


def too_late(number: str, called_s: float, returned_s: float) -> Operation:
    return Operation(number, "k", Kind.CANCEL, called_s, returned_s, refused=True)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([submitted("a", 0, 1), submitted("b", 2, 3, existed=True)], id="a retry"),
        pytest.param([unanswered("a", Kind.SUBMIT, 0), submitted("b", 2, 3)], id="the first one was never heard"),
        pytest.param(
            [unanswered("a", Kind.SUBMIT, 0), submitted("b", 2, 3, existed=True)], id="it was heard after all"
        ),
        pytest.param([submitted("a", 0, 5), submitted("b", 1, 4, existed=True)], id="at the same time"),
        pytest.param([submitted("a", 0, 5), not_found("b", 1, 2), looked("c", 3, 4, "PENDING")], id="seen in between"),
        pytest.param(
            [submitted("a", 0, 1), looked("b", 2, 3, "RUNNING", 1), looked("c", 4, 5, "COMPLETED", 1)], id="it ran"
        ),
        pytest.param(
            [submitted("a", 0, 1), looked("b", 2, 6, "RUNNING", 1), looked("c", 3, 5, "COMPLETED", 1)],
            id="looks overlap",
        ),
        pytest.param([submitted("a", 0, 1), cancelled("b", 2, 3), looked("c", 4, 5, "CANCELLED")], id="cancelled"),
        pytest.param(
            [submitted("a", 0, 1), cancelled("b", 2, 3, "RUNNING"), looked("c", 4, 5, "COMPLETED")], id="done first"
        ),
        pytest.param(
            [submitted("a", 0, 1), unanswered("b", Kind.CANCEL, 2), looked("c", 4, 5, "CANCELLED")],
            id="cancelled unheard",
        ),
        pytest.param(
            [submitted("a", 0, 1), unanswered("b", Kind.CANCEL, 2), looked("c", 4, 5, "COMPLETED")],
            id="never cancelled",
        ),
        pytest.param([submitted("a", 0, 1), looked("b", 2, 3, "FAILED", 2), too_late("c", 4, 5)], id="too late"),
        pytest.param([submitted("a", 0, 1), cancelled("b", 2, 3), too_late("c", 4, 5)], id="cancelled twice"),
    ],
)
def test_what_can_have_been_is_explained(history: list[Operation]) -> None:
    assert check_workload("k", history) is None


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([submitted("a", 0, 1), submitted("b", 2, 3)], id="made twice"),
        pytest.param([submitted("a", 0, 1), submitted("b", 2, 3, existed=True, workload="w2")], id="another one"),
        pytest.param([submitted("a", 0, 1, existed=True)], id="there before it was made"),
        pytest.param([submitted("a", 0, 1), not_found("b", 2, 3)], id="forgotten"),
        pytest.param([looked("a", 0, 1, "PENDING"), submitted("b", 2, 3)], id="seen too soon"),
        pytest.param(
            [submitted("a", 0, 1), looked("b", 2, 3, "COMPLETED"), looked("c", 4, 5, "RUNNING")], id="woken up"
        ),
        pytest.param(
            [submitted("a", 0, 1), looked("b", 2, 3, "COMPLETED"), looked("c", 4, 5, "FAILED")], id="two ends"
        ),
        pytest.param([submitted("a", 0, 1), looked("b", 2, 3, "CANCELLED")], id="cancelled by nobody"),
        pytest.param(
            [submitted("a", 0, 1), looked("b", 2, 3, "CANCELLED"), cancelled("c", 4, 5)],
            id="cancelled before it was asked",
        ),
        pytest.param([submitted("a", 0, 1), cancelled("b", 2, 3), looked("c", 4, 5, "RUNNING")], id="goes on"),
        pytest.param([submitted("a", 0, 1), too_late("b", 2, 3), looked("c", 4, 5, "PENDING")], id="was not too late"),
        pytest.param(
            [submitted("a", 0, 1), looked("b", 2, 3, "RUNNING", 3), looked("c", 4, 5, "RUNNING", 2)], id="undone"
        ),
        pytest.param(
            [unanswered("a", Kind.SUBMIT, 4), looked("b", 0, 1, "PENDING"), submitted("c", 5, 6)],
            id="unheard, yet later",
        ),
        pytest.param(
            [submitted("a", 0, 1), unanswered("b", Kind.CANCEL, 6), looked("c", 4, 5, "CANCELLED")],
            id="asked afterwards",
        ),
    ],
)
def test_what_cannot_have_been_is_found(history: list[Operation]) -> None:
    (violation,) = check(history)
    assert violation.key == "k"


def _explained_by_trying_all_orders(calls: list[Operation], made: tuple[int, ...], seen: Seen) -> bool:
    """The plain twin: every order of every choice of calls without an outcome, with nothing remembered."""
    left = [number for number in range(len(calls)) if number not in made]
    if not any(calls[number].is_known for number in left):
        return True
    for number in left:
        ended_before = any(calls[other].returned_s < calls[number].called_s for other in left)
        if not ended_before and any(
            _explained_by_trying_all_orders(calls, (*made, number), after) for after in outcomes(seen, calls[number])
        ):
            return True
    return False


def test_the_search_agrees_with_trying_all_orders(generator: np.random.Generator) -> None:
    explained = 0
    for _ in range(400):
        calls = [submitted("a", 0.0, 1.0)] if generator.random() < 0.7 else []
        for number in range(int(generator.integers(2, 6))):
            begin_s = float(generator.uniform(0, 6))
            end_s = begin_s + float(generator.uniform(0, 3)) if generator.random() < 0.8 else NEVER_S
            states = ("RUNNING", "COMPLETED", "CANCELLED")
            state, attempts = states[int(generator.integers(3))], int(generator.integers(0, 2))
            call = [
                looked(str(number), begin_s, end_s, state, attempts),
                cancelled(str(number), begin_s, end_s, state),
                submitted(str(number), begin_s, end_s, existed=bool(generator.integers(2))),
                too_late(str(number), begin_s, end_s),
            ][int(generator.integers(4))]
            calls.append(call)
        found = check_workload("k", calls) is None
        assert found == _explained_by_trying_all_orders(calls, (), Seen()), calls
        explained += found
    assert 40 < explained < 360


def test_a_client_that_asks_again_and_again_makes_no_endless_search() -> None:
    asked = [unanswered(str(number), Kind.SUBMIT, float(number)) for number in range(200)]
    asked += [unanswered(f"c{number}", Kind.CANCEL, 300.0 + number) for number in range(200)]
    heard = submitted("b", 250, 251, existed=True)
    assert check_workload("k", [*asked, heard, looked("d", 600, 601, "CANCELLED")]) is None
    assert check_workload("k", [*asked, heard, not_found("d", 600, 601)]) is not None


def test_calls_of_a_client_that_was_killed_have_no_outcome() -> None:
    begun = {"number": "1-0", "key": "k", "kind": "submit", "called_s": 1.0}
    (call,) = operations_of([begun])
    assert not call.is_known
    (call,) = operations_of([begun, {"number": "1-0", "returned_s": 2.0, "workload": "w1", "existed": False}])
    assert call == submitted("1-0", 1.0, 2.0)


def test_half_a_line_is_none(tmp_path: Path) -> None:
    file = tmp_path / "history"
    assert read_history(file) == []
    file.write_text('{"number": "1-0", "key": "k", "kind": "get", "called_s": 1.0}\n{"number": "1-0", "returned')
    assert [one.is_known for one in read_history(file)] == [False]
