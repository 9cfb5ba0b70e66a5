"""Hill climbing by moves of tables, of communities, of jobs with all their tables, and of short chains of these.

Rule: MAST's hill climbing (§3.4) first: the best region of every table, what gains most first. Where single moves gain nothing
any more, pieces of communities move as a whole, then the tables of each training job, the most important jobs first; then
chains, in which one move makes room for another. Every move gains, as in the paper, and nothing here is random: a job whose
tables lie in two regions is brought together in one move, and what a used-up quota holds back changes places.

Invariant: after each move the placement is legal, within the limits of copying, and better than before.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_placement.solvers.moves import moves_of
from data_placement.solvers.plan import PlacementTask, Solution
from data_placement.solvers.saved_search import resumed, saved_search
from data_placement.solvers.stages import Stage, StagedSearch

_SEED = 1
"""Of the communities: they are the same in every plan."""


@dataclass(frozen=True, slots=True)
class HillClimbing:
    """`turns`: how often jobs and chains move, with single moves after them; what a turn opens, the next one uses."""

    turns: int = 2

    def solve(self, task: PlacementTask) -> Solution:
        """A placement that none of these moves improves much; nothing here is random."""
        saved = resumed(self, task)
        turns = (Stage.JOBS, Stage.CLIMB, Stage.CHAINS, Stage.CLIMB) * self.turns
        stages = (Stage.CLIMB, Stage.COMMUNITIES, *turns)
        if saved is None:
            search = StagedSearch.started(task, stages, 0, 0, _SEED)
        else:
            search = StagedSearch.resumed(task, saved, stages, 0, 0)
        finished = search.run(task.progress)
        climb = search.climb
        return Solution(
            climb.state.home,
            moves_of(task.problem, task.start, climb.state, climb.ledger),
            finished=finished,
            saved=None if finished else saved_search(self, task, search.saved()),
            communities=search.communities(),
        )
