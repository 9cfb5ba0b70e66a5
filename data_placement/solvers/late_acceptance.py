"""Late-acceptance search over single, gathering, swapping and group moves, in turns with hill climbing.

Moves of one table at a time cannot bring together a training job whose tables lie in three regions: every first step costs
and gains nothing. Here communities, jobs with their tables and chains also move as a whole, and in between
random steps move a table, all tables of a job, two tables in exchange, or tables that the same jobs read. A random step is
accepted when the placement is no worse than some hundred steps ago (Burke and Bykov, "The late acceptance hill-climbing
heuristic", 2017). The best placement that was met is the result. A step is priced without making it, so one that is not
accepted is cheap. In the end moves of the weightiest tables and jobs are forced, and the others climb around them.

Invariant: every accepted placement is legal, within the limits of copying, and makes no exceeded limit worse.
"""

from __future__ import annotations

from dataclasses import dataclass

from data_placement.objective.placement_state import state_of
from data_placement.solvers.moves import moves_between
from data_placement.solvers.plan import PlacementTask, Solution
from data_placement.solvers.saved_search import resumed, saved_search
from data_placement.solvers.stages import Stage, StagedSearch


@dataclass(frozen=True, slots=True)
class LateAcceptance:
    """So many steps per table in equal parts, between which hill climbing and group moves use what they have opened."""

    steps_per_table: int = 50
    fewest_steps: int = 200_000
    history_length: int = 500
    """Steps; half as many as there are tables, if that is more."""
    turns: int = 5
    """Stages of search"""

    def solve(self, task: PlacementTask) -> Solution:
        """The best placement met; deterministic by the generator's seed unless it was stopped by the clock."""
        problem, saved = task.problem, resumed(self, task)
        groups, chains = (Stage.COMMUNITIES, Stage.JOBS, Stage.CLIMB), (Stage.CHAINS, Stage.CLIMB)
        stages = (
            Stage.CLIMB,
            *groups,
            *chains,
            *(Stage.SEARCH, *groups) * self.turns,
            *chains,
            Stage.FORCE,
            Stage.CLIMB,
        )
        steps = max(self.fewest_steps, self.steps_per_table * len(task.start.home)) // self.turns
        if saved is None:
            seed = int(task.rng.integers(1, 2**31))
            search = StagedSearch.started(task, stages, steps, self.history_length, seed)
        else:
            search = StagedSearch.resumed(task, saved, stages, steps, self.history_length)
        finished = search.run(task.progress)
        rest = None if finished else saved_search(self, task, search.saved())
        if not finished:
            search.end_early()
        # What was moved and moved back has left rounding behind.
        state = state_of(problem, search.climb.state.home)
        moves = moves_between(problem, task.start, state)
        return Solution(state.home, moves, finished=finished, saved=rest, communities=search.communities())
