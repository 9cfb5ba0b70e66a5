"""Linear and integer programs as this package states them: maximise, with rows that bound sums (HiGHS)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import highspy
import numpy as np


class NotSolved(Exception):
    """The solver has no answer, not even a poor one."""


class Solution(NamedTuple):
    """What the solver found."""

    values: tuple[float, ...]
    """Of the columns."""
    objective: float
    bound: float
    """No answer is better: equal to the objective, but for rounding, unless the time was up."""


class Program:
    """A program to maximise; columns are from 0 to their most."""

    __slots__ = ("_columns", "_solver")

    def __init__(self, rows: Sequence[tuple[float, float]]) -> None:
        """Each row has the least and the greatest sum."""
        self._solver = highspy.Highs()
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("threads", 1)
        self._columns = 0
        nothing, zeros = np.zeros(0, np.int32), np.zeros(0)
        for least, greatest in rows:
            self._solver.addRow(least, greatest, 0, nothing, zeros)

    def add_column(self, worth: float, most: float, entries: Sequence[tuple[int, float]], whole: bool) -> None:
        """A column with its entries (row, coefficient), each row once."""
        rows = np.array([row for row, _ in entries], np.int32)
        self._solver.addCol(
            -worth, 0.0, most, len(entries), rows, np.array([value for _, value in entries], np.float64)
        )
        if whole:
            self._solver.changeColIntegrality(self._columns, highspy.HighsVarType.kInteger)
        self._columns += 1

    def solve(self, time_limit_s: float, gap: float = 0.0, most_nodes: int | None = None) -> Solution:
        """The best answer within the limit, at most this fraction below the bound where it is reached in time.

        `most_nodes` of the search tree are looked at, which unlike a time gives the same answer on every machine.

        Raises NotSolved when there is none.
        """
        if not self._columns:
            return Solution((), 0.0, 0.0)
        self._solver.setOptionValue("time_limit", time_limit_s)
        self._solver.setOptionValue("mip_rel_gap", gap)
        if most_nodes is not None:
            self._solver.setOptionValue("mip_max_nodes", most_nodes)
        self._solver.run()
        status = self._solver.getModelStatus()
        info = self._solver.getInfo()
        solved = status == highspy.HighsModelStatus.kOptimal
        if not solved and (
            status != highspy.HighsModelStatus.kTimeLimit
            or info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible
        ):
            raise NotSolved(f"the solver ended with {status}")
        values = tuple([float(value) for value in self._solver.getSolution().col_value])
        objective = -float(info.objective_function_value)
        bound = -float(info.mip_dual_bound)
        return Solution(values, objective, max(objective, bound) if math.isfinite(bound) else objective)
