"""Hill climbing, as Tetris plans homes every day (MAST §3.4).

Rule: find the best region of every table; queue those that gain by a move, the greatest gain first; before each move
find the best region anew, for earlier moves may have changed it. Stop when the queue is empty or the quota is used up.

Where the paper's round ends with an empty queue another one begins, until a round gains next to nothing: on the next
day the paper would do the same. A table for which the rest of the quota is too small is passed over, smaller ones still move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from data_placement.objective.placement_state import (
    PlacementState,
    Scratch,
    apply_move,
    price,
    scratch_of,
    state_of,
    total_cost,
)
from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.copying import CopyingBudget, allows, charge, copying_budget
from data_placement.solvers.plan import MoveLimits, Moves, Progress, Solution, Start, undisturbed
from domain.warehouse import Floats, Integers
from kernels.compiled import compiled, compiled_part

LEAST_GAIN = 1e-12
"""A gain below this is rounding; the whole objective is about 1."""
LEAST_ROUND_GAIN = 1e-3
"""A round that gains less than this part of the cost is the last one."""
_CHUNK = 20_000
"""Tables between two looks at whether to go on."""


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


@dataclass(frozen=True, slots=True)
class HillClimbing:
    """MAST's solver. `rounds`: at most so many passes over all tables; 1 is what the paper does in a day."""

    rounds: int = 100

    def solve(
        self,
        problem: PlacementProblem,
        start: Start,
        limits: MoveLimits,
        rng: np.random.Generator,
        progress: Progress = undisturbed,
    ) -> Solution:
        """A placement that single legal moves within the limits hardly improve; nothing here is random."""
        state = state_of(problem, start.home)
        budget = copying_budget(problem, start, limits)
        ledger = ledger_of(problem)
        finished = climb(problem, state, budget, ledger, self.rounds, progress)
        return Solution(state.home, moves_of(problem, start, state, ledger), finished=finished)


def ledger_of(problem: PlacementProblem) -> Ledger:
    """The ledger before anything moves."""
    count = len(problem.table_bytes)
    return Ledger(np.zeros(count, np.int64), np.zeros(count), np.zeros(count), np.zeros(count), np.zeros(1, np.int64))


def climb(
    problem: PlacementProblem,
    state: PlacementState,
    budget: CopyingBudget,
    ledger: Ledger,
    rounds: int,
    progress: Progress,
) -> bool:
    """Moves tables until a round gains next to nothing; returns False when it was stopped before."""
    scratch = scratch_of(problem)
    count = len(problem.table_bytes)
    gains = np.zeros(count)
    for number in range(1, rounds + 1):
        for first in range(0, count, _CHUNK):
            if not progress(f"round {number}: looking for better regions", first / count):
                return False
            _find_gains(problem, state, scratch, budget, gains, first, min(count, first + _CHUNK))
        queue = np.flatnonzero(gains > LEAST_GAIN)
        queue = queue[np.lexsort((queue, -gains[queue]))]
        before = total_cost(state)
        for first in range(0, len(queue), _CHUNK):
            if not progress(f"round {number}: moving tables", first / len(queue)):
                return False
            _move_queued(problem, state, scratch, budget, ledger, queue[first : first + _CHUNK])
        if before - total_cost(state) <= LEAST_ROUND_GAIN * before:
            return True
    return True


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


@compiled_part
def best_region(
    problem: PlacementProblem, state: PlacementState, scratch: Scratch, budget: CopyingBudget, table: int
) -> tuple[int, float, float, float]:
    """The region with the lowest cost among those that are legal and can be copied to; how much each term sinks there.

    The present home, and nothing gained, where no other is better. Of equally good ones the first.
    """
    present = state.home[table]
    best = present
    least = -LEAST_GAIN
    reads = gpu = storage = 0.0
    for target in range(len(state.stored)):
        if target == present or not allows(problem, budget, table, present, target):
            continue
        change = price(problem, state, scratch, table, target)
        cost = change.reads + change.gpu + change.storage
        if change.legal and cost < least:
            least = cost
            best = target
            reads, gpu, storage = -change.reads, -change.gpu, -change.storage
    return best, reads, gpu, storage


@compiled
def _find_gains(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    budget: CopyingBudget,
    gains: Floats,
    first: int,
    last: int,
) -> None:
    for table in range(first, last):
        _, reads, gpu, storage = best_region(problem, state, scratch, budget, table)
        gains[table] = reads + gpu + storage


@compiled
def _move_queued(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    budget: CopyingBudget,
    ledger: Ledger,
    queue: Integers,
) -> None:
    """Moves the tables of the queue, one after the other, to what is then their best region."""
    for table in queue:
        target, reads, gpu, storage = best_region(problem, state, scratch, budget, table)
        if target == state.home[table]:
            continue
        charge(problem, budget, table, state.home[table], target)
        apply_move(problem, state, scratch, table, target)
        ledger.clock[0] += 1
        ledger.order[table] = ledger.clock[0]
        ledger.reads[table] += reads
        ledger.gpu[table] += gpu
        ledger.storage[table] += storage
