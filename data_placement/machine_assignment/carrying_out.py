"""From an assignment to machines on their way: which begin, which go on, which turn back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from data_placement.machine_assignment.assignment import MachineMove
from domain.identifiers import ClusterId, MachineId
from domain.machine_moves import MachineMovement, MoveState


class MovesAfter(NamedTuple):
    """What the moves under way become."""

    changed: tuple[MachineMovement, ...]
    """New ones, and such as go elsewhere or turn back; by machine."""
    ended: tuple[MachineId, ...]
    """Those that had not begun, and stay; by name."""


def moves_after(
    under_way: Mapping[MachineId, MachineMovement],
    decided: Iterable[MachineMove],
    cluster_of: Mapping[MachineId, ClusterId],
    now: float,
) -> MovesAfter:
    """What a decision makes of the moves under way; `cluster_of` is where each machine is.

    A machine that drains already goes elsewhere by the deadline that it has. One that is to stay after all turns back.
    """
    to = {move.machine: move.to_cluster for move in decided}
    changed: list[MachineMovement] = []
    ended: list[MachineId] = []
    for machine, move in under_way.items():
        target = to.pop(machine, move.from_cluster)
        if move.state is MoveState.WAITING and target == move.from_cluster:
            ended.append(machine)
            continue
        state = move.state
        if state is not MoveState.WAITING:
            state = MoveState.RETURNING if target == move.from_cluster else MoveState.DRAINING
        going = move.to_cluster if target == move.from_cluster else target
        if (going, state) != (move.to_cluster, move.state):
            changed.append(replace(move, to_cluster=going, state=state, decided_s=now))
    changed += [
        MachineMovement(machine, cluster_of[machine], target, MoveState.WAITING, now) for machine, target in to.items()
    ]
    return MovesAfter(tuple(sorted(changed, key=lambda move: move.machine)), tuple(sorted(ended)))
