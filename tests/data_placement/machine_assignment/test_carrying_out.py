from __future__ import annotations

from dataclasses import replace

import pytest

from data_placement.machine_assignment.assignment import MachineMove
from data_placement.machine_assignment.carrying_out import MovesAfter, moves_after
from domain.identifiers import ClusterId, MachineId
from domain.machine_moves import MachineMovement, MoveState

M1 = MachineId("m1")
A, B, C = ClusterId("a"), ClusterId("b"), ClusterId("c")
WAITING = MachineMovement(M1, A, B, MoveState.WAITING, 1.0)
DRAINING = MachineMovement(M1, A, B, MoveState.DRAINING, 1.0, 600.0)
RETURNING = replace(DRAINING, state=MoveState.RETURNING)
NOTHING = MovesAfter((), ())


@pytest.mark.parametrize(
    ("under_way", "target", "after"),
    [
        (None, None, NOTHING),
        (None, B, MovesAfter((replace(WAITING, decided_s=2.0),), ())),
        (WAITING, B, NOTHING),
        (WAITING, C, MovesAfter((replace(WAITING, to_cluster=C, decided_s=2.0),), ())),
        (WAITING, None, MovesAfter((), (M1,))),
        (DRAINING, B, NOTHING),
        (DRAINING, C, MovesAfter((replace(DRAINING, to_cluster=C, decided_s=2.0),), ())),
        (DRAINING, None, MovesAfter((replace(RETURNING, decided_s=2.0),), ())),
        (RETURNING, None, NOTHING),
        (RETURNING, B, MovesAfter((replace(DRAINING, decided_s=2.0),), ())),
    ],
)
def test_what_a_decision_makes_of_a_move(
    under_way: MachineMovement | None, target: ClusterId | None, after: MovesAfter
) -> None:
    moves = {} if under_way is None else {M1: under_way}
    decided = [] if target is None else [MachineMove(M1, A, target, 0)]
    assert moves_after(moves, decided, {M1: A}, 2.0) == after
