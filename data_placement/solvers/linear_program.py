"""A linear program with integers, put together variable by variable and row by row, and solved by HiGHS."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import highspy
import numpy as np

from domain.warehouse import Floats


class ProgramSolution(NamedTuple):
    """What HiGHS found."""

    values: Floats | None
    """Of all variables; None where nothing feasible was found."""
    bound: float
    """No solution costs less; minus endless where HiGHS knows nothing yet."""
    optimal: bool
    run_time_s: float
    """How long HiGHS worked, by its own account."""


class LinearProgram:
    """Minimises the cost of its variables under its rows."""

    def __init__(self) -> None:
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._costs: list[float] = []
        self._integer: list[bool] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []
        self._starts: list[int] = [0]
        self._indices: list[int] = []
        self._values: list[float] = []

    def variable(self, least: float, most: float, cost: float = 0.0) -> int:
        """A new variable's column."""
        self._lower.append(least)
        self._upper.append(most)
        self._costs.append(cost)
        self._integer.append(False)
        return len(self._costs) - 1

    def binary(self) -> int:
        """The column of a new variable that is 0 or 1."""
        return self.integer(0.0, 1.0)

    def integer(self, least: float, most: float) -> int:
        """The column of a new variable that is a whole number."""
        column = self.variable(least, most)
        self._integer[column] = True
        return column

    @property
    def variables(self) -> int:
        """How many there are."""
        return len(self._costs)

    def price(self, column: int, cost: float) -> None:
        """Sets what a unit of the variable costs."""
        self._costs[column] = cost

    def row(self, columns: Sequence[int], weights: Sequence[float], least: float, most: float) -> None:
        """The weighted sum of the variables lies between the two; each column occurs once."""
        self._indices.extend(columns)
        self._values.extend(weights)
        self._starts.append(len(self._indices))
        self._row_lower.append(least)
        self._row_upper.append(most)

    def solve(
        self, time_limit_s: float, begin: Floats | None = None, close_enough: float = 1e-6, *, relaxed: bool = False
    ) -> ProgramSolution:
        """The best solution that is found within the time.

        `begin` is a solution to begin with; one that is within `close_enough` of the bound is taken for the best.
        `relaxed`: no variable has to be a whole number.
        """
        program = highspy.HighsLp()
        program.num_col_ = len(self._costs)
        program.num_row_ = len(self._row_lower)
        program.col_cost_ = np.array(self._costs)
        program.col_lower_ = np.array(self._lower)
        program.col_upper_ = np.array(self._upper)
        program.row_lower_ = np.array(self._row_lower)
        program.row_upper_ = np.array(self._row_upper)
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.array(self._starts, np.int32)
        program.a_matrix_.index_ = np.array(self._indices, np.int32)
        program.a_matrix_.value_ = np.array(self._values)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        if not relaxed:
            program.integrality_ = [kinds[integer] for integer in self._integer]
        solver = highspy.Highs()
        solver.silent()
        solver.setOptionValue("time_limit", time_limit_s)
        solver.setOptionValue("mip_rel_gap", 1e-7)
        solver.setOptionValue("mip_abs_gap", close_enough)
        solver.setOptionValue("threads", 1)
        solver.passModel(program)
        if begin is not None:
            known = highspy.HighsSolution()
            known.col_value = begin.tolist()
            solver.setSolution(known)
        solver.run()
        information = solver.getInfo()
        feasible = information.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        values = np.array(solver.getSolution().col_value) if feasible else None
        if relaxed:
            bound = float(information.objective_function_value) if optimal else -inf
        else:
            bound = float(information.mip_dual_bound)
        return ProgramSolution(values, bound, optimal, solver.getRunTime())
