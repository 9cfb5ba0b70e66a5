"""Which tables a placement moves, and what each move gained."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_placement.objective.placement_state import PlacementState, Scratch, price, scratch_of
from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.plan import Moves, Start
from domain.warehouse import Floats, Indices, Integers
from kernels.compiled import compiled


class Ledger(NamedTuple):
    """What has become of each table, (T,) each."""

    order: Integers
    """When it moved last, from 1; 0: not at all."""
    reads: Floats
    """How much the terms of the objective sank by its moves."""
    gpu: Floats
    storage: Floats
    clock: Integers
    """(1,) moves so far"""


def ledger_of(problem: PlacementProblem) -> Ledger:
    """The ledger before anything moves."""
    count = len(problem.table_bytes)
    return Ledger(np.zeros(count, np.int64), np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(1, np.int64))


def moves_of(problem: PlacementProblem, start: Start, state: PlacementState, ledger: Ledger) -> Moves:
    """The tables that are elsewhere than at the start, in the order of their last moves."""
    moved = np.flatnonzero(state.home != start.home)
    moved = moved[np.lexsort((moved, ledger.order[moved]))]
    target = state.home[moved]
    replicated = (start.replicas[moved] >> target & 1) > 0
    copied = np.where(replicated, 0.0, problem.table_bytes[moved])
    return Moves(
        moved.astype(np.int32),
        start.home[moved],
        target,
        copied,
        ledger.reads[moved],
        ledger.gpu[moved],
        ledger.storage[moved],
    )


def moves_between(problem: PlacementProblem, start: Start, state: PlacementState) -> Moves:
    """The moves, what gains most first; what each gains is how much worse each term were if that table alone went back."""
    ledger = ledger_of(problem)
    moved = np.flatnonzero(state.home != start.home)
    _gains_of_going_back(problem, state, scratch_of(problem), start.home, moved, ledger)
    gains = ledger.reads + ledger.gpu + ledger.storage
    ledger.order[moved[np.lexsort((moved, -gains[moved]))]] = np.arange(1, len(moved) + 1)
    return moves_of(problem, start, state, ledger)


@compiled
def _gains_of_going_back(
    problem: PlacementProblem, state: PlacementState, scratch: Scratch, home: Indices, moved: Integers, ledger: Ledger
) -> None:
    for table in moved:
        change = price(problem, state, scratch, table, home[table])
        ledger.reads[table], ledger.gpu[table], ledger.storage[table] = change.reads, change.gpu, change.storage
