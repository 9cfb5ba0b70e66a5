"""A cost that no placement is below, for warehouses of which the best placement is not found.

Rule: first the linear relaxation of the program of Fig. 4 (`placement_program`), with more tangents where its solution lies,
until it says no more; then, where the program is small enough, the same with integers in the time that is left: what
branching and cuts prove. Neither is above the cost of any legal placement.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.mixed_integer import MOST_VARIABLES
from data_placement.solvers.placement_program import CLOSE, PlacementProgram, variables_of
from data_placement.solvers.plan import MoveLimits, Progress, Start

MOST_RELAXED_VARIABLES = 400_000
"""Beyond it the relaxation alone takes minutes and gigabytes."""
DEFAULT_TIME_LIMIT_S = 60.0
_REFINEMENTS = 10
_SAYS_NO_MORE = 1e-4
"""A round of tangents that raises the bound by less than this part of it is the last one."""


@dataclass(frozen=True, slots=True)
class LowerBound:
    """What is known. The program without branching says `relaxation`; None: it was not solved in time."""

    bound: float | None
    relaxation: float | None
    remark: str = ""
    """Why there is none"""


def lower_bound(
    problem: PlacementProblem, start: Start, limits: MoveLimits, time_limit_s: float, progress: Progress
) -> LowerBound:
    """A bound of the cost of every placement that keeps to the limits, by HiGHS within that time of its own."""
    variables = variables_of(problem)
    if variables > MOST_RELAXED_VARIABLES:
        remark = (
            f"no bound: {variables:,} variables are more than the relaxation is solved for ({MOST_RELAXED_VARIABLES:,})"
        )
        return LowerBound(None, None, remark)
    program = PlacementProgram(problem, start, limits)
    proof = _Proof(program, time_limit_s, progress)
    relaxation = proof.go_on("solving the linear relaxation", relaxed=True)
    if relaxation == -inf:
        return LowerBound(None, None, f"no bound: the relaxation was not solved within {time_limit_s:g} s")
    best = relaxation
    if variables <= MOST_VARIABLES:
        best = max(best, proof.go_on("proving a bound by branching", relaxed=False))
    # HiGHS keeps to rows but for a millionth.
    return LowerBound(best - CLOSE * max(1.0, abs(best)), relaxation)


@dataclass(slots=True)
class _Proof:
    """A program that gets more tangents from solution to solution, while there is time."""

    program: PlacementProgram
    left_s: float
    progress: Progress

    def go_on(self, what: str, *, relaxed: bool) -> float:
        """The best bound that is proven; minus endless: none in time."""
        best = -inf
        for refinement in range(_REFINEMENTS):
            self.progress(what, refinement / _REFINEMENTS)
            found = self.program.linear.solve(self.left_s, relaxed=relaxed)
            self.left_s = max(0.0, self.left_s - found.run_time_s)
            proven = found.bound + self.program.constant
            raised, best = proven - best, max(best, proven)
            if found.values is None or not found.optimal or raised <= _SAYS_NO_MORE * abs(best):
                break
            if not self.program.refine(found.values):
                break
        return best
