"""Late-acceptance search over single, gathering, swapping and group moves, after hill climbing.

Hill climbing moves one table at a time, and so cannot bring together a training job whose tables lie in three regions:
every first step costs and gains nothing. Here a step may move all tables of a job, exchange two tables, or move a group
of tables that the same jobs read; a step is accepted when it is no worse than the placement some hundred steps ago
(Burke and Bykov, "The late acceptance hill-climbing heuristic", 2017). The best placement that was met is the result.

A step is priced without making it, so one that is not accepted is cheap.

Invariant: every accepted placement is legal, within the limits of copying, and makes no exceeded limit worse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from data_placement.objective.group_moves import group_scratch_of
from data_placement.objective.placement_state import PlacementState, scratch_of, state_of, total_cost
from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.copying import CopyingBudget
from data_placement.solvers.hill_climbing import MOST_ROUNDS, Climb
from data_placement.solvers.moves import moves_between
from data_placement.solvers.plan import CHUNK, PlacementTask, Progress, Solution
from data_placement.solvers.saved_search import packed, packed_state, resumed, saved_search, unpacked
from data_placement.solvers.search_steps import LARGEST_GROUP, Search, return_to_best, search_steps

_PATIENCE_LENGTHS = 10
"""A search that has found nothing better in so many lengths of its history is heated."""


@dataclass(frozen=True, slots=True)
class LateAcceptance:
    """Hill climbing, then late acceptance for so many steps per table, or until it is stopped."""

    steps_per_table: int = 50
    fewest_steps: int = 200_000
    history_length: int = 500

    def solve(self, task: PlacementTask) -> Solution:
        """The best placement met; deterministic by the generator's seed unless it was stopped by the clock."""
        problem, saved = task.problem, resumed(self, task)
        climb = Climb.begun(task) if saved is None else Climb.resumed(task, saved)
        seed = int(task.rng.integers(1, 2**62)) if saved is None else int(saved["seed"].item())
        rest: dict[str, NDArray[np.generic]] | None = None
        searching = saved is not None and "search.best" in saved
        if not searching and not climb.run(MOST_ROUNDS, task.progress):
            rest = climb.saved()
        state, budget = climb.state, climb.budget
        if rest is None and len(state.home) and problem.regions > 1:
            search = self._search(problem, state, seed)
            if saved is not None and searching:
                search = unpacked("search", search, saved)
            if not self._run(problem, state, budget, search, task.progress):
                rest = {**climb.saved(), **packed_state(state), **packed("budget", budget), **packed("search", search)}
            return_to_best(problem, state, scratch_of(problem), budget, search)
        # What was moved and moved back has left rounding behind.
        state = state_of(problem, state.home)
        return Solution(
            state.home,
            moves_between(problem, task.start, state),
            finished=rest is None,
            saved=None if rest is None else saved_search(self, task, {**rest, "seed": np.array(seed)}),
        )

    def _search(self, problem: PlacementProblem, state: PlacementState, seed: int) -> Search:
        """The search before its first step."""
        tables, cost = len(state.home), total_cost(state)
        journal = max(100_000, tables)
        return Search(
            history=np.full(self.history_length, cost),
            step=np.zeros(1, np.int64),
            best=np.array([cost]),
            heated=np.array([-_PATIENCE_LENGTHS * self.history_length, 0], np.int64),
            patience=max(_PATIENCE_LENGTHS * self.history_length, tables // 4),
            random=np.array([seed], np.uint64),
            group=np.zeros(LARGEST_GROUP, np.int32),
            group_source=np.zeros(LARGEST_GROUP, np.int32),
            group_target=np.zeros(LARGEST_GROUP, np.int32),
            seen_table=np.full(tables, -1, np.int64),
            journal_table=np.zeros(journal, np.int32),
            journal_source=np.zeros(journal, np.int32),
            journal_length=np.zeros(1, np.int64),
        )

    def _run(
        self,
        problem: PlacementProblem,
        state: PlacementState,
        budget: CopyingBudget,
        search: Search,
        progress: Progress,
    ) -> bool:
        """All steps that are left; returns False when it was stopped before."""
        scratch, group = scratch_of(problem), group_scratch_of(problem)
        steps = max(self.fewest_steps, self.steps_per_table * len(state.home))
        while search.step[0] < steps:
            if not progress("searching for better placements", float(search.step[0]) / steps):
                return False
            search_steps(problem, state, scratch, group, budget, search, min(CHUNK, steps - int(search.step[0])))
        return True
