"""Hill climbing table by table, as Tetris plans homes every day (MAST §3.4).

Rule: find the best region of every table; queue those that gain by a move, the greatest gain first; before each move
find the best region anew, for earlier moves may have changed it. Stop when the queue is empty or the quota is used up.

Where the paper's round ends with an empty queue another one begins, until a round gains next to nothing: on the next
day the paper would do the same. A table for which the rest of the quota is too small is passed over, smaller ones still move.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

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
from data_placement.solvers.moves import Ledger, ledger_of, moves_of
from data_placement.solvers.plan import CHUNK, PlacementTask, Progress, SavedSearch, Solution
from data_placement.solvers.saved_search import packed, packed_state, resumed, saved_search, unpacked, unpacked_state
from domain.warehouse import Floats, Integers
from kernels.compiled import compiled, compiled_part

LEAST_GAIN = 1e-12
"""A gain below this is rounding; the whole objective is about 1."""
LEAST_ROUND_GAIN = 1e-3
"""A round that gains less than this part of the cost is the last one."""
MOST_ROUNDS = 100
"""Passes over all tables; a handful are usual."""


@dataclass(frozen=True, slots=True)
class SingleMoves:
    """MAST's solver as published. `rounds`: at most so many passes over all tables; 1 is what the paper does in a day."""

    rounds: int = MOST_ROUNDS

    def solve(self, task: PlacementTask) -> Solution:
        """A placement that single legal moves within the limits hardly improve; nothing here is random."""
        saved = resumed(self, task)
        climb = Climb.begun(task) if saved is None else Climb.resumed(task, saved)
        finished = climb.run(self.rounds, task.progress)
        return Solution(
            climb.state.home,
            moves_of(task.problem, task.start, climb.state, climb.ledger),
            finished=finished,
            saved=None if finished else saved_search(self, task, climb.saved()),
        )


@dataclass(slots=True)
class Climb:
    """Moves of single tables in progress."""

    problem: PlacementProblem
    state: PlacementState
    budget: CopyingBudget
    ledger: Ledger
    gains: Floats
    """(T,) of this round"""
    round: int = 1
    moving: bool = False
    """Whether the queue of this round is made, and its tables are being moved."""
    queue: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    cost_before: float = 0.0
    """When the queue was made"""
    position: int = 0
    """Of the next table to look at, or of the next place in the queue."""

    @classmethod
    def begun(cls, task: PlacementTask) -> Self:
        """Before anything has moved."""
        problem = task.problem
        budget = copying_budget(problem, task.start, task.limits)
        gains = np.zeros(len(problem.table_bytes))
        return cls(problem, state_of(problem, task.start.home), budget, ledger_of(problem), gains)

    @classmethod
    def resumed(cls, task: PlacementTask, saved: SavedSearch) -> Self:
        """Where it was when it was stopped."""
        problem = task.problem
        number, moving, position, cost_before = saved["climb.place"].tolist()
        return cls(
            problem,
            unpacked_state(problem, saved),
            unpacked("budget", copying_budget(problem, task.start, task.limits), saved),
            unpacked("ledger", ledger_of(problem), saved),
            np.array(saved["climb.gains"], np.float64),
            int(number),
            bool(moving),
            np.array(saved["climb.queue"], np.int64),
            cost_before,
            int(position),
        )

    def saved(self) -> dict[str, NDArray[np.generic]]:
        """All that is needed to go on."""
        return {
            **packed_state(self.state),
            **packed("budget", self.budget),
            **packed("ledger", self.ledger),
            "climb.gains": self.gains,
            "climb.queue": self.queue,
            "climb.place": np.array([self.round, self.moving, self.position, self.cost_before]),
        }

    def begin_anew(self) -> None:
        """The next run begins with a first round, from where the tables are."""
        self.round, self.moving, self.position = 1, False, 0

    def run(self, rounds: int, progress: Progress) -> bool:
        """Moves tables until a round gains next to nothing; returns False when it was stopped before."""
        scratch = scratch_of(self.problem)
        while self.round <= rounds:
            if not self.moving:
                if not self._look(scratch, progress):
                    return False
                queue = np.flatnonzero(self.gains > LEAST_GAIN)
                self.queue = queue[np.lexsort((queue, -self.gains[queue]))]
                self.cost_before = total_cost(self.state)
                self.moving, self.position = True, 0
            if not self._move(scratch, progress):
                return False
            gained = self.cost_before - total_cost(self.state)
            self.round, self.moving, self.position = self.round + 1, False, 0
            if gained <= LEAST_ROUND_GAIN * self.cost_before:
                break
        return True

    def _look(self, scratch: Scratch, progress: Progress) -> bool:
        """Finds what each table would gain by its best move."""
        count = len(self.gains)
        while self.position < count:
            if not progress(f"round {self.round}: looking for better regions", self.position / count):
                return False
            last = min(count, self.position + CHUNK)
            _find_gains(self.problem, self.state, scratch, self.budget, self.gains, self.position, last)
            self.position = last
        return True

    def _move(self, scratch: Scratch, progress: Progress) -> bool:
        """Moves the tables of the queue."""
        while self.position < len(self.queue):
            if not progress(f"round {self.round}: moving tables", self.position / len(self.queue)):
                return False
            part = self.queue[self.position : self.position + CHUNK]
            _move_queued(self.problem, self.state, scratch, self.budget, self.ledger, part)
            self.position += len(part)
        return True


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
