"""MAST's Fig. 4 as a linear program with integers: its variables, its rows, and what they stand for.

Unlike in a search, R(job) is a variable here: a training job is in a region when all its tables are (§3.4 names this as
what makes the program hard to write). Squares are approximated from below by tangents, of which more are added where a
solution lies; the sigmoid by a half up to the supply and its value at 8 units of overload beyond. So what the program
says, with integers or without, is a lower bound of every placement's cost.
"""

from __future__ import annotations

from math import exp, inf
from typing import NamedTuple

import numpy as np

from data_placement.objective.placement_state import AT_HOME, PlacementState, state_of
from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.linear_program import LinearProgram
from data_placement.solvers.plan import MoveLimits, Start
from domain.warehouse import Floats, Indices

_TANGENTS = 12
"""Of each square at first."""
_FAR_OVER = 8.0
"""Units of overload from which on the sigmoid is counted as at this point."""
CLOSE = 1e-6
"""A gap between cost and bound that is none."""


class _Square(NamedTuple):
    """A variable that is to be at least factor · (amount / whole − share)²; the amount is a sum of variables."""

    variable: int
    columns: tuple[int, ...]
    weights: tuple[float, ...]
    whole: float
    share: float
    factor: float


def variables_of(problem: PlacementProblem) -> int:
    """About how many variables the program has."""
    return (len(problem.table_bytes) + 2 * len(problem.training)) * problem.regions


class PlacementProgram:
    """The program, its variables and what they stand for. A solution's cost is its objective and `constant`."""

    def __init__(self, problem: PlacementProblem, start: Start, limits: MoveLimits) -> None:
        tables, regions, jobs = len(problem.table_bytes), problem.regions, len(problem.training)
        self.linear = LinearProgram()
        self.constant = 0.0
        self._problem = problem
        self._squares: list[_Square] = []
        self._home = [[self.linear.binary() for _ in range(regions)] for _ in range(tables)]
        for table in range(tables):
            self.linear.row(self._home[table], [1.0] * regions, 1.0, 1.0)
        self._region = [self._training(job) if problem.training[job] else self._analytics(job) for job in range(jobs)]
        before = state_of(problem, start.home)
        self._limit(before)
        self._limit_copying(start, limits)
        self._price_gpus()
        self._price_storage()

    def home_of(self, values: Floats) -> Indices:
        """The placement that a solution stands for."""
        return np.array([np.argmax(values[columns]) for columns in self._home], np.int32)

    def refine(self, values: Floats) -> bool:
        """Adds tangents where the solution lies; whether any square was approximated badly there."""
        added = False
        for square in self._squares:
            amount = sum(weight * values[column] for column, weight in zip(square.columns, square.weights, strict=True))
            apart = amount / square.whole - square.share
            if square.factor * apart * apart - values[square.variable] > CLOSE * 1e-2:
                self._tangent(square, apart)
                added = True
        return added

    def _tables_of(self, job: int) -> list[int]:
        start = self._problem.table_start
        return [int(table) for table in self._problem.tables[start[job] : start[job + 1]]]

    def _training(self, job: int) -> list[int]:
        """A variable per region: whether all tables of the job are there."""
        problem, tables = self._problem, self._tables_of(job)
        whole = float(problem.read_cost[job] * problem.read_bytes[job])
        self.constant += whole
        columns: list[int] = []
        for region in range(problem.regions):
            homes = [self._home[table][region] for table in tables]
            together = self.linear.variable(0.0, 1.0 if homes else 0.0, cost=-whole)
            for home in homes:
                self.linear.row([together, home], [1.0, -1.0], -inf, 0.0)
            if homes:
                self.linear.row([together, *homes], [1.0] + [-1.0] * len(homes), 1.0 - len(homes), inf)
            columns.append(together)
        return columns

    def _analytics(self, job: int) -> list[int]:
        """A variable per region: whether most of the job's tables are there, the first region of several."""
        problem, tables = self._problem, self._tables_of(job)
        cost, whole = float(problem.read_cost[job]), float(problem.read_bytes[job])
        self.constant += cost * whole
        if not tables:
            return [self.linear.variable(0.0, 0.0) for _ in range(problem.regions)]
        columns = [self.linear.binary() for _ in range(problem.regions)]
        self.linear.row(columns, [1.0] * len(columns), 1.0, 1.0)
        for region, chosen in enumerate(columns):
            here = [self._home[table][region] for table in tables]
            for other in range(problem.regions):
                if other == region:
                    continue
                there = [self._home[table][other] for table in tables]
                margin = 1.0 if other < region else 0.0
                slack = len(tables) + margin
                weights = [1.0] * len(here) + [-1.0] * len(there) + [-slack]
                self.linear.row([*here, *there, chosen], weights, margin - slack, inf)
            # What is read in the region; scaled so that numbers stay near 1.
            read = self.linear.variable(0.0, 1.0, cost=-cost * whole)
            self.linear.row([read, chosen], [1.0, -1.0], -inf, 0.0)
            sizes = [-float(problem.table_bytes[table]) / max(whole, 1e-300) for table in tables]
            self.linear.row([read, *here], [1.0, *sizes], -inf, 0.0)
        return columns

    def _limit(self, before: PlacementState) -> None:
        """Expressions 4 to 6; what is exceeded at the start may be as much as it was."""
        problem = self._problem
        for region in range(problem.regions):
            if problem.storage_limited:
                columns = [home[region] for home in self._home]
                most = max(float(problem.storage_supply[region]), float(before.stored[region]))
                self._at_most(columns, problem.table_bytes, most)
            if problem.cpu_limited:
                for application in range(len(problem.cpu_supply)):
                    jobs = np.flatnonzero(problem.application == application).tolist()
                    most = max(float(problem.cpu_supply[application, region]), float(before.cpu[application, region]))
                    self._at_most([self._region[job][region] for job in jobs], problem.cpu_hours[jobs], most)
            if problem.gpu_limited:
                for gpu in range(len(problem.gpu_supply)):
                    jobs = np.flatnonzero(problem.gpu_model == gpu).tolist()
                    most = max(float(problem.gpu_supply[gpu, region]), float(before.demand[gpu, :, region].sum()))
                    self._at_most([self._region[job][region] for job in jobs], problem.gpu_hours[jobs], most)
        least = min(problem.home_least, float(before.sums[AT_HOME]))
        columns, hours = [], []
        for job in np.flatnonzero(problem.high).tolist():
            for region in np.flatnonzero(problem.gpu_supply[problem.gpu_model[job]] > 0.0).tolist():
                columns.append(self._region[job][region])
                hours.append(-float(problem.gpu_hours[job]))
        self._at_most(columns, np.array(hours), -least * (1.0 - 1e-9))

    def _limit_copying(self, start: Start, limits: MoveLimits) -> None:
        problem = self._problem
        links = limits.links(problem.regions)
        columns: list[int] = []
        sizes: list[float] = []
        for source in range(problem.regions):
            for target in range(problem.regions):
                copied = (start.home == source) & ((start.replicas >> target & 1) == 0)
                tables = np.flatnonzero(copied).tolist() if source != target else []
                self._at_most(
                    [self._home[table][target] for table in tables], problem.table_bytes[tables], links[source, target]
                )
                columns += [self._home[table][target] for table in tables]
                sizes += problem.table_bytes[tables].tolist()
        self._at_most(columns, np.array(sizes), limits.total_bytes)

    def _at_most(self, columns: list[int], weights: Floats, most: float) -> None:
        """A row, scaled so that its numbers are at most about 1."""
        if not columns or most == inf:
            return
        scale = max(float(np.abs(weights).max()), 1e-300)
        self.linear.row(columns, [float(weight) / scale for weight in weights], -inf, most / scale + 1e-9)

    def _price_gpus(self) -> None:
        """Expressions 7 and 8."""
        problem = self._problem
        sigmoid = 1.0 / (1.0 + exp(-_FAR_OVER))
        for gpu in range(len(problem.gpu_supply)):
            for region in range(problem.regions):
                squares: list[int] = []
                worst = 0.0
                for priority in range(len(problem.priority_cost)):
                    whole = float(problem.demand_total[gpu, priority])
                    jobs = np.flatnonzero((problem.gpu_model == gpu) & (problem.priority == priority)).tolist()
                    factor = float(problem.priority_cost[priority])
                    if not jobs or whole <= 1e-200 or factor == 0.0:
                        continue
                    share = float(problem.gpu_share[gpu, region])
                    squares.append(
                        self._square(
                            [self._region[job][region] for job in jobs], problem.gpu_hours[jobs], whole, share, factor
                        )
                    )
                    worst += factor * max(share, 1.0 - share) ** 2
                if not squares:
                    continue
                cost = self.linear.variable(0.0, inf, cost=1.0)
                if problem.overload_unit == 0.0:
                    self.linear.row([cost, *squares], [1.0] + [-1.0] * len(squares), 0.0, inf)
                    continue
                self.linear.row([cost, *squares], [1.0] + [-0.5] * len(squares), 0.0, inf)
                over = self.linear.binary()
                jobs = np.flatnonzero(problem.gpu_model == gpu).tolist()
                hours = problem.gpu_hours[jobs]
                free = float(problem.gpu_supply[gpu, region]) + _FAR_OVER * problem.overload_unit
                total = max(float(hours.sum()), 1e-300)
                columns = [self._region[job][region] for job in jobs]
                if total > free:
                    self.linear.row([*columns, over], [*(hours / total).tolist(), -1.0], -inf, free / total)
                    weights = [1.0, *([-sigmoid] * len(squares)), -sigmoid * worst]
                    self.linear.row([cost, *squares, over], weights, -sigmoid * worst, inf)

    def _price_storage(self) -> None:
        """Expression 9."""
        problem = self._problem
        if problem.storage_cost == 0.0:
            return
        for region in range(problem.regions):
            square = self._square(
                [home[region] for home in self._home],
                problem.table_bytes,
                problem.stored_total,
                float(problem.storage_share[region]),
                problem.storage_cost,
            )
            self.linear.price(square, 1.0)

    def _square(self, columns: list[int], weights: Floats, whole: float, share: float, factor: float) -> int:
        """A variable for the square, with its first tangents."""
        variable = self.linear.variable(0.0, inf)
        square = _Square(variable, tuple(columns), tuple(weights.tolist()), whole, share, factor)
        self._squares.append(square)
        for apart in np.linspace(-share, 1.0 - share, _TANGENTS).tolist():
            self._tangent(square, apart)
        return variable

    def _tangent(self, square: _Square, apart: float) -> None:
        """The square is nowhere below its tangent: f · (2 a · (amount / whole − share) − a²)."""
        slope = 2.0 * square.factor * apart
        weights = [-slope * weight / square.whole for weight in square.weights]
        least = -slope * square.share - square.factor * apart * apart
        self.linear.row([square.variable, *square.columns], [1.0, *weights], least, inf)
