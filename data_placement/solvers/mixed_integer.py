"""The best placement of a small warehouse by a mixed-integer program (HiGHS), and a bound that proves it.

What the program says is a lower bound of every placement's cost, and its solution is priced by the formula itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from data_placement.objective.placement_state import state_of, total_cost
from data_placement.solvers.hill_climbing import HillClimbing
from data_placement.solvers.moves import moves_between
from data_placement.solvers.placement_program import CLOSE, PlacementProgram, variables_of
from data_placement.solvers.plan import PlacementTask, Solution
from data_placement.solvers.saved_search import CannotResume

MOST_VARIABLES = 100_000
"""Beyond it nothing is found in a time that anybody waits."""
_REFINEMENTS = 6
"""How often tangents are added where a solution lies."""


class TooLarge(ValueError):
    """The warehouse has more variables than the solver takes."""


@dataclass(frozen=True, slots=True)
class MixedInteger:
    """The exact solver for small warehouses. `time_limit_s`: of HiGHS for each of its runs."""

    time_limit_s: float = 60.0

    def solve(self, task: PlacementTask) -> Solution:
        """The best placement, and the bound that proves it; at the least what hill climbing finds.

        Raises TooLarge for more than `MOST_VARIABLES` variables, and CannotResume for any saved search: HiGHS saves none.
        """
        if task.resume is not None:
            raise CannotResume("the mixed-integer program saves nothing to go on from; start anew")
        problem, start, progress = task.problem, task.start, task.progress
        if variables_of(problem) > MOST_VARIABLES:
            raise TooLarge(
                f"{len(problem.table_bytes)} tables, {len(problem.training)} jobs and {problem.regions} regions are more than a "
                f"mixed-integer program can be solved for ({MOST_VARIABLES} variables); use late_acceptance"
            )
        program = PlacementProgram(problem, start, task.limits)
        climbed = HillClimbing().solve(task)
        best_home, best_cost = climbed.home, total_cost(state_of(problem, climbed.home))
        bound, finished = -inf, False
        for refinement in range(_REFINEMENTS):
            if not progress("solving the mixed-integer program", refinement / _REFINEMENTS):
                break
            found = program.linear.solve(self.time_limit_s)
            bound = max(bound, found.bound + program.constant)
            if found.values is None:
                break
            home = program.home_of(found.values)
            cost = total_cost(state_of(problem, home))
            if cost < best_cost:
                best_home, best_cost = home, cost
            finished = found.optimal
            if best_cost - bound <= CLOSE * max(1.0, abs(best_cost)) or not found.optimal:
                break
            if not program.refine(found.values):
                break
        state = state_of(problem, best_home)
        return Solution(best_home, moves_between(problem, start, state), bound if bound > -inf else None, finished)
