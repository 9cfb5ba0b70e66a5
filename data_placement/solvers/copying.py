"""How much is copied so that tables are where a placement wants them, against the limits of a day (MAST §3.4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.plan import MoveLimits, Start
from domain.warehouse import Floats, Indices, Integers
from kernels.compiled import compiled_part


class CopyingBudget(NamedTuple):
    """What is still allowed. Counts from where the tables were at first: a table that comes back costs nothing."""

    home: Indices
    """(T,) at the start"""
    replicas: Integers
    """(T,)"""
    total: Floats
    """(1,) bytes left"""
    links: Floats
    """(R, R) bytes left"""


def copying_budget(problem: PlacementProblem, start: Start, limits: MoveLimits) -> CopyingBudget:
    """The budget before anything moves."""
    links = limits.links(problem.regions).astype(np.float64, copy=True)
    return CopyingBudget(start.home, start.replicas, np.array([limits.total_bytes]), links)


@compiled_part
def bytes_to_copy(problem: PlacementProblem, budget: CopyingBudget, table: int, region: int) -> float:
    """What must be copied for the table's home to be this region."""
    if budget.home[table] == region or (budget.replicas[table] >> region) & 1:
        return 0.0
    return float(problem.table_bytes[table])


@compiled_part
def allows(problem: PlacementProblem, budget: CopyingBudget, table: int, present: int, target: int) -> bool:
    """Whether the table may go on from its present home to the target."""
    size = bytes_to_copy(problem, budget, table, target)
    if size == 0.0:
        return True
    back = bytes_to_copy(problem, budget, table, present)
    origin = budget.home[table]
    if size - back > budget.total[0]:
        return False
    return bool(size <= budget.links[origin, target])


@compiled_part
def charge(problem: PlacementProblem, budget: CopyingBudget, table: int, present: int, target: int) -> None:
    """Takes what a move from the present home to the target copies, and gives back what is not copied any more."""
    origin = budget.home[table]
    size = bytes_to_copy(problem, budget, table, target)
    back = bytes_to_copy(problem, budget, table, present)
    if back > 0.0:
        budget.total[0] += back
        budget.links[origin, present] += back
    if size > 0.0:
        budget.total[0] -= size
        budget.links[origin, target] -= size


@compiled_part
def exceeded(budget: CopyingBudget) -> bool:
    """Whether more is copied than allowed."""
    if budget.total[0] < 0.0:
        return True
    for source in range(budget.links.shape[0]):
        for target in range(budget.links.shape[1]):
            if budget.links[source, target] < 0.0:
                return True
    return False
