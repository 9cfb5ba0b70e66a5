"""Machines to clusters as a mixed-integer program (HiGHS), solved once for each figure of the cost, the weightiest first.

What a run has found is a row of all later ones. Each run begins with the solution of the one before it, the first with
the greedy one: so no figure is worse than there, unless an earlier one is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from data_placement.machine_assignment.affine import Affine, total, variable
from data_placement.machine_assignment.groups import Group, GroupedMachines, Numbers
from data_placement.machine_assignment.problem import ModelProblem
from data_placement.solvers.linear_program import LinearProgram
from domain.capacity_requests import UNLIMITED, CapacityRequest, CapacityUnit, FailureDomain
from domain.identifiers import ClusterId
from domain.warehouse import Floats

_SIDE = 0.4
"""What disturbs running work, and moves, count beside every figure for less than this together: where the time runs out, a
solution that is good in one figure must not move machines for nothing."""
_WHOLE = 0.5
"""Every figure is a whole number: a solution nearer than that to the bound is the best."""


class FigureBound(NamedTuple):
    """One figure of the cost, as the program has it."""

    figure: str
    value: int
    bound: int
    """No assignment whose earlier figures are those that were found has less."""


class NumbersFound(NamedTuple):
    """What the program found."""

    numbers: dict[tuple[ClusterId, Group], int]
    bounds: tuple[FigureBound, ...]
    """Of the figures for which there was time."""
    run_time_s: float
    """How long HiGHS worked."""


def solve_program(
    problem: ModelProblem, machines: GroupedMachines, begin: Numbers, time_limit_s: float
) -> NumbersFound:
    """How many machines of each group each cluster is to have; `begin` is a solution to begin with."""
    program = _Program(problem, machines)
    values = program.values_of(begin)
    bounds: list[FigureBound] = []
    left_s = time_limit_s
    figures = program.figures()
    for position, (figure, objective) in enumerate(figures):
        # A run that needs less than its part of the time leaves more to those after it.
        part_s = left_s / (len(figures) - position)
        if part_s <= 0.0:
            break
        priced = program.with_moves(objective)
        for column in range(program.linear.variables):
            program.linear.price(column, priced.terms.get(column, 0.0))
        solution = program.linear.solve(part_s, values, _WHOLE)
        left_s -= solution.run_time_s
        if solution.values is not None:
            values = program.completed(solution.values)
        value = round(objective.value(values))
        least = solution.bound + objective.constant - _SIDE
        bound = max(0, ceil(least - 1e-6)) if solution.bound > -inf else 0
        bounds.append(FigureBound(figure, value, min(value, bound)))
        program.at_most(objective, value)
    return NumbersFound(program.numbers_of(values), tuple(bounds), time_limit_s - left_s)


@dataclass(frozen=True, slots=True)
class _Counted:
    """What counts for a request."""

    total: Affine
    unmet: Affine
    by_domain: dict[str, Affine]
    """In each of the domains of which any may fail."""


class _Program:
    """The variables and rows. Those that follow from how many machines come and go are worked out of these (`completed`)."""

    def __init__(self, problem: ModelProblem, machines: GroupedMachines) -> None:
        self.linear = LinearProgram()
        self._machines = machines
        self._come: dict[tuple[ClusterId, Group], int] = {}
        self._go: dict[tuple[ClusterId, Group], list[tuple[int, int, int]]] = {}
        """Column, what is running on each of these machines, how many they are; the idlest first."""
        self._following: list[tuple[int, Callable[[Floats], float]]] = []
        self._unmet, self._unmet_spares, self._running, self._moved, self._spread = (Affine() for _ in range(5))
        whole = len(problem.machines) + sum(machine.running for machine in problem.machines)
        self._side = _SIDE / max(1, whole)
        self._add_machines({request.cluster for request in problem.requests})
        counts = {request.cluster: self._add_request(request) for request in problem.requests}
        for pool in problem.pools():
            self._add_pool(pool, [counts[request.cluster] for request in pool])

    def figures(self) -> tuple[tuple[str, Affine], ...]:
        """The figures of the cost, the weightiest first."""
        return (
            ("unmet", self._unmet),
            ("unmet_spares", self._unmet_spares),
            ("running", self._running),
            ("moves", self._moved),
            ("spread", self._spread),
        )

    def with_moves(self, figure: Affine) -> Affine:
        """The figure, and beside it a little for each machine that moves."""
        priced = Affine()
        priced.add(figure)
        priced.add(self._running, self._side)
        priced.add(self._moved, self._side)
        return priced

    def at_most(self, some: Affine, most: float) -> None:
        """A row."""
        if some.terms:
            self.linear.row(list(some.terms), list(some.terms.values()), -inf, most - some.constant)

    def values_of(self, numbers: Numbers) -> Floats:
        """All variables, for these numbers of machines."""
        values = np.zeros(self.linear.variables)
        for key, columns in self._go.items():
            left = max(0, len(self._machines.present.get(key, ())) - numbers.get(key, 0))
            for column, _, how_many in columns:
                values[column] = min(left, how_many)
                left -= min(left, how_many)
        for key, column in self._come.items():
            values[column] = max(0, numbers.get(key, 0) - len(self._machines.present.get(key, ())))
        return self.completed(values)

    def completed(self, values: Floats) -> Floats:
        """How many machines come and go as the values say, rounded; and what follows from that."""
        values = np.round(values)
        for column, follow in self._following:
            values[column] = follow(values)
        return values

    def numbers_of(self, values: Floats) -> dict[tuple[ClusterId, Group], int]:
        """How many machines of each group each cluster has then."""
        return {key: round(self._held(*key).value(values)) for key in self._go}

    # ------------------------------------------------------------ machines that come and go

    def _add_machines(self, asking: set[ClusterId]) -> None:
        machines = self._machines
        for group in machines.groups:
            size = sum(len(machines.present.get((cluster, group), ())) for cluster in machines.clusters)
            balance = Affine()
            for cluster in machines.clusters:
                present = machines.present.get((cluster, group), [])
                if cluster in asking and size > len(present):
                    column = self._come[cluster, group] = self.linear.integer(0.0, float(size - len(present)))
                    balance.add(variable(column))
                self._go[cluster, group] = []
                for running in sorted({machine.running for machine in present}):
                    how_many = sum(machine.running == running for machine in present)
                    column = self.linear.integer(0.0, float(how_many))
                    self._go[cluster, group].append((column, running, how_many))
                    balance.add(variable(column), -1.0)
                    self._moved.add(variable(column))
                    self._running.add(variable(column), float(running))
            self.linear.row(list(balance.terms), list(balance.terms.values()), 0.0, 0.0)

    def _held(self, cluster: ClusterId, group: Group) -> Affine:
        """How many machines of the group the cluster has."""
        held = Affine(constant=float(len(self._machines.present.get((cluster, group), ()))))
        if (cluster, group) in self._come:
            held.add(variable(self._come[cluster, group]))
        for column, _, _ in self._go[cluster, group]:
            held.add(variable(column), -1.0)
        return held

    # ------------------------------------------------------------ requests

    def _add_request(self, request: CapacityRequest) -> _Counted:
        in_rack: dict[tuple[str, str], Affine] = {}
        in_domain: dict[str, Affine] = {}
        for group in self._machines.groups:
            units = float(group.gpus) if request.unit is CapacityUnit.GPUS else 1.0
            held = self._held(request.cluster, group)
            in_rack.setdefault((group.power_domain, group.rack), Affine()).add(held, units)
            in_domain.setdefault(group.power_domain, Affine()).add(held, units)
        self._spread.add(variable(self._greatest(list(in_domain.values()))))
        most_in_rack = request.most_in(FailureDomain.RACK)
        counts_in_rack = {place: self._limited(some, most_in_rack) for place, some in in_rack.items()}
        summed: dict[str, Affine] = {}
        for (domain, _), some in counts_in_rack.items():
            summed.setdefault(domain, Affine()).add(some)
        most_in_domain = request.most_in(FailureDomain.POWER_DOMAIN)
        counts_in_domain = {domain: self._limited(some, most_in_domain) for domain, some in summed.items()}
        whole = self._equal_to(total(counts_in_domain.values()))
        unmet = variable(self._at_least_zero([whole], -1.0, float(request.amount)))
        self._unmet.add(unmet)
        by_domain: dict[str, Affine] = {}
        if request.survives is FailureDomain.RACK:
            for (_, rack), some in counts_in_rack.items():
                by_domain.setdefault(rack, Affine()).add(some)
        elif request.survives is FailureDomain.POWER_DOMAIN:
            by_domain = counts_in_domain
        return _Counted(whole, unmet, by_domain)

    def _add_pool(self, pool: Sequence[CapacityRequest], counts: Sequence[_Counted]) -> None:
        wanted = float(sum(request.amount for request in pool))
        there = total([*(one.total for one in counts), *(one.unmet for one in counts)])
        spares = max(request.spares for request in pool)
        if spares:
            self._unmet_spares.add(variable(self._at_least_zero([there], -1.0, wanted + spares)))
        if pool[0].survives is not FailureDomain.NONE:
            fails: dict[str, Affine] = {}
            for one in counts:
                for domain, some in one.by_domain.items():
                    fails.setdefault(domain, Affine()).add(some)
            there.add(variable(self._greatest(list(fails.values()))), -1.0)
            self._unmet_spares.add(variable(self._at_least_zero([there], -1.0, wanted)))

    # ------------------------------------------------------------ variables that follow from others

    def _greatest(self, parts: Sequence[Affine]) -> int:
        """The column of the greatest of these, where it is wanted small."""
        column = self.linear.variable(0.0, inf)
        for part in parts:
            row = Affine()
            row.add(part)
            row.add(variable(column), -1.0)
            self.at_most(row, 0.0)
        self._following.append((column, lambda values: max((part.value(values) for part in parts), default=0.0)))
        return column

    def _limited(self, some: Affine, most: int) -> Affine:
        """What counts of it: it, or the limit, where much is wanted."""
        if most >= UNLIMITED:
            return some
        column = self.linear.variable(0.0, float(most))
        row = variable(column)
        row.add(some, -1.0)
        self.at_most(row, 0.0)
        self._following.append((column, lambda values: min(float(most), some.value(values))))
        return variable(column)

    def _equal_to(self, some: Affine) -> Affine:
        """A variable that is this sum: rows in which it stands stay short."""
        column = self.linear.variable(0.0, inf)
        row = variable(column)
        row.add(some, -1.0)
        self.linear.row(list(row.terms), list(row.terms.values()), -row.constant, -row.constant)
        self._following.append((column, some.value))
        return variable(column)

    def _at_least_zero(self, parts: Sequence[Affine], weight: float, constant: float) -> int:
        """The column of max(0, constant + weight · their sum), where it is wanted small."""
        column = self.linear.variable(0.0, inf)
        short = Affine(constant=constant)
        short.add(total(parts), weight)
        row = Affine()
        row.add(short)
        row.add(variable(column), -1.0)
        self.at_most(row, 0.0)
        self._following.append((column, lambda values: max(0.0, short.value(values))))
        return column
