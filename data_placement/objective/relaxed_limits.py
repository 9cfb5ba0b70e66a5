"""Limits that may be exceeded for a while, at a price: what moving a group of tables costs then.

Rule: exceeding a limit of Expressions 4 to 6, or the supply of GPUs where that is one, costs in proportion to how much is too
much. A limit that is exceeded from the beginning counts from there. So a search may pass through placements that are not
legal, and is drawn back to those that are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_placement.objective.group_moves import GroupScratch, collect_group
from data_placement.objective.placement_state import AT_HOME, PlacementState, Scratch, clear, price_cells, storage_cell
from data_placement.objective.problem import TINY, PlacementProblem
from domain.warehouse import Floats, Indices
from kernels.compiled import compiled_part

_ROUNDING = 1.0 + 1e-12
_NEAR_ZERO = 1e-9
"""What sums that were added up and taken back may still have where nothing is left: bytes, or hours."""


class RelaxedLimits(NamedTuple):
    """How much is allowed, infinite where there is no limit, and what one unit more costs."""

    storage: Floats
    """(R,) bytes"""
    storage_price: float
    cpu: Floats
    """(A, R) CPU hours"""
    cpu_price: Floats
    """(A,)"""
    gpu: Floats
    """(G, R) GPU hours"""
    gpu_price: Floats
    """(G,)"""
    home_least: float
    """GPU hours of Expression 6"""
    home_price: float


def relaxed_limits(problem: PlacementProblem, state: PlacementState, price: float) -> RelaxedLimits:
    """The limits, or what is exceeded now; exceeding one by all that its regions' largest allows costs `price`."""
    storage, cpu, gpu = problem.storage_supply, problem.cpu_supply, problem.gpu_supply
    home_least = min(problem.home_least, float(state.sums[AT_HOME]))
    return RelaxedLimits(
        storage=np.maximum(storage, state.stored) if problem.storage_limited else np.full_like(storage, np.inf),
        storage_price=price / float(_largest(storage[None, :])[0]),
        cpu=np.maximum(cpu, state.cpu) if problem.cpu_limited else np.full_like(cpu, np.inf),
        cpu_price=price / _largest(cpu),
        gpu=np.maximum(gpu, state.demand.sum(axis=1)) if problem.gpu_limited else np.full_like(gpu, np.inf),
        gpu_price=price / _largest(gpu),
        home_least=home_least,
        home_price=price / home_least if home_least > 0.0 else 0.0,
    )


def _largest(supply: Floats) -> Floats:
    """(rows,) the largest finite supply of any region, 1 where there is none."""
    largest = np.where(np.isfinite(supply), supply, 0.0).max(axis=1, initial=0.0)
    return np.asarray(np.where(largest > TINY, largest, 1.0))


@compiled_part
def _more_beyond(present: float, more: float, limit: float) -> float:
    """By how much more the limit is exceeded than now; negative where it is less."""
    return max(0.0, present + more - limit) - max(0.0, present - limit)


@compiled_part
def price_beyond(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    limits: RelaxedLimits,
    tables: Indices,
    targets: Indices,
    length: int,
) -> float:
    """What moving the first tables, each once, to these regions changes of the objective and of what exceeding costs.

    As `price_group`, and within its greatest number of pairs.
    """
    cost = 0.0
    for index in range(length):
        size = problem.table_bytes[tables[index]]
        group.stored[state.home[tables[index]]] -= size
        group.stored[targets[index]] += size
    for region in range(len(state.stored)):
        more = group.stored[region]
        if more != 0.0:
            cost += storage_cell(problem, state.stored[region] + more, region) - state.storage_cell_cost[region]
            cost += limits.storage_price * _more_beyond(state.stored[region], more, limits.storage[region])
            group.stored[region] = 0.0
    reads, at_home = collect_group(problem, state, scratch, group, tables, targets, length)
    present = state.sums[AT_HOME]
    cost += reads + limits.home_price * _more_beyond(-present, -at_home, -limits.home_least)
    gpu_cost, _ = price_cells(problem, state, scratch)
    cost += gpu_cost + _cells_beyond(state, scratch, limits)
    clear(scratch)
    return cost


@compiled_part
def _cells_beyond(state: PlacementState, scratch: Scratch, limits: RelaxedLimits) -> float:
    """What the demand in the scratch changes of what exceeding quotas of GPUs and CPUs costs."""
    regions = len(state.stored)
    cost = 0.0
    for place in range(scratch.lengths[0]):
        gpu, region = divmod(scratch.touched_cells[place], regions)
        present = 0.0
        more = 0.0
        for priority in range(state.demand.shape[1]):
            present += state.demand[gpu, priority, region]
            more += scratch.demand[gpu, priority, region]
        cost += limits.gpu_price[gpu] * _more_beyond(present, more, limits.gpu[gpu, region])
    for place in range(scratch.lengths[1]):
        application, region = divmod(scratch.touched_cpu[place], regions)
        more = scratch.cpu[application, region]
        over = _more_beyond(state.cpu[application, region], more, limits.cpu[application, region])
        cost += limits.cpu_price[application] * over
    return cost


@compiled_part
def within(state: PlacementState, limits: RelaxedLimits) -> bool:
    """Whether nothing is exceeded but by rounding."""
    if state.sums[AT_HOME] * _ROUNDING + _NEAR_ZERO < limits.home_least:
        return False
    for region in range(len(state.stored)):
        if state.stored[region] > limits.storage[region] * _ROUNDING + _NEAR_ZERO:
            return False
        for application in range(limits.cpu.shape[0]):
            if state.cpu[application, region] > limits.cpu[application, region] * _ROUNDING + _NEAR_ZERO:
                return False
        for gpu in range(limits.gpu.shape[0]):
            demand = 0.0
            for priority in range(state.demand.shape[1]):
                demand += state.demand[gpu, priority, region]
            if demand > limits.gpu[gpu, region] * _ROUNDING + _NEAR_ZERO:
                return False
    return True
