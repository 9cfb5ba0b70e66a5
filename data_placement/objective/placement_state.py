"""A placement in progress: the home of every table, and all that follows from it, kept up to date by single moves.

Rule: what a move costs to evaluate is proportional to the jobs that read the table, not to the problem: only those
jobs can change their region, and only the cells of demand that they leave and enter change their cost.

Invariant: after any sequence of moves the state equals the one made anew from its homes, up to rounding.
"""

from __future__ import annotations

from math import exp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_placement.objective.problem import PlacementProblem
from domain.warehouse import Flags, Floats, Indices
from kernels.compiled import compiled, compiled_part


class PlacementState(NamedTuple):
    """What changes while tables move; sizes as in the problem."""

    home: Indices
    """(T,)"""
    tables_in: Indices
    """(J, R) how many of a job's tables have their home in a region."""
    bytes_in: Floats
    """(analytics jobs, R) how much of what such a job reads is in a region."""
    bytes_row: Indices
    """(J,) the row in `bytes_in`; -1 for training."""
    job_region: Indices
    """(J,) R(job): -1 where its tables leave it none."""
    demand: Floats
    """(G, P, R) GPU hours."""
    stored: Floats
    """(R,) bytes of tables at home."""
    cpu: Floats
    """(A, R) CPU hours."""
    gpu_cell_cost: Floats
    """(G, R) what Expression 2 is made of."""
    storage_cell_cost: Floats
    """(R,) what Expression 3 is made of."""
    sums: Floats
    """(2,) the cost of Expression 1, and the GPU hours that Expression 6 counts."""


READS, AT_HOME = 0, 1


class Scratch(NamedTuple):
    """What a move changes; between two evaluations all is zero."""

    demand: Floats
    """(G, P, R)"""
    cell_touched: Flags
    """(G, R)"""
    touched_cells: Indices
    """(G · R,) g · R + r"""
    cpu: Floats
    """(A, R)"""
    cpu_touched: Flags
    """(A, R)"""
    touched_cpu: Indices
    """(A · R,) a · R + r"""
    lengths: NDArray[np.int64]
    """(2,) of both lists"""


class Change(NamedTuple):
    """What a move does to the costs, each negative where it gets better, and whether it is legal."""

    reads: float
    gpu: float
    storage: float
    at_home: float
    """GPU hours that Expression 6 counts more."""
    legal: bool


def state_of(problem: PlacementProblem, home: Indices) -> PlacementState:
    """The state of the placement that puts every table at this home; `home` is copied."""
    gpus, priorities = problem.demand_total.shape
    jobs, regions = len(problem.training), problem.regions
    rows = np.full(jobs, -1, np.int32)
    analytics = np.flatnonzero(~problem.training)
    rows[analytics] = np.arange(len(analytics), dtype=np.int32)
    state = PlacementState(
        home=home.astype(np.int32, copy=True),
        tables_in=np.zeros((jobs, regions), np.int32),
        bytes_in=np.zeros((len(analytics), regions)),
        bytes_row=rows,
        job_region=np.full(jobs, -1, np.int32),
        demand=np.zeros((gpus, priorities, regions)),
        stored=np.zeros(regions),
        cpu=np.zeros((len(problem.cpu_supply), regions)),
        gpu_cell_cost=np.zeros((gpus, regions)),
        storage_cell_cost=np.zeros(regions),
        sums=np.zeros(2),
    )
    _fill(problem, state)
    return state


def scratch_of(problem: PlacementProblem) -> Scratch:
    """Room for what a move changes."""
    gpus, priorities = problem.demand_total.shape
    applications, regions = len(problem.cpu_supply), problem.regions
    return Scratch(
        demand=np.zeros((gpus, priorities, regions)),
        cell_touched=np.zeros((gpus, regions), np.bool_),
        touched_cells=np.zeros(gpus * regions, np.int32),
        cpu=np.zeros((applications, regions)),
        cpu_touched=np.zeros((applications, regions), np.bool_),
        touched_cpu=np.zeros(applications * regions, np.int32),
        lengths=np.zeros(2, np.int64),
    )


def total_cost(state: PlacementState) -> float:
    """Expressions 1 to 3, weighted."""
    return float(state.sums[READS] + state.gpu_cell_cost.sum() + state.storage_cell_cost.sum())


@compiled_part
def plurality(state: PlacementState, job: int) -> int:
    """The region with the most of the job's tables, the first of several; -1 where there is none."""
    best = -1
    most = 0
    for region in range(state.tables_in.shape[1]):
        if state.tables_in[job, region] > most:
            most = state.tables_in[job, region]
            best = region
    return best


@compiled_part
def job_region_after(problem: PlacementProblem, state: PlacementState, job: int, source: int, target: int) -> int:
    """R(job) after one of its tables has moved from the source to the target, which differ."""
    counts = state.tables_in
    if problem.training[job]:
        tables = problem.table_start[job + 1] - problem.table_start[job]
        return target if counts[job, target] + 1 == tables else -1
    before = state.job_region[job]
    if before != source:
        more = counts[job, target] + 1 - counts[job, before]
        return target if more > 0 or (more == 0 and target < before) else before
    best = -1
    most = 0
    for region in range(counts.shape[1]):
        count = counts[job, region]
        if region == source:
            count -= 1
        elif region == target:
            count += 1
        if count > most:
            most = count
            best = region
    return best


@compiled_part
def gpu_cell(problem: PlacementProblem, demand: Floats, extra: Floats, gpu: int, region: int) -> float:
    """Expressions 7 and 8 for a GPU model in a region, summed over priorities and weighted. Both (G, P, R) are added."""
    total = 0.0
    cost = 0.0
    for priority in range(demand.shape[1]):
        amount = demand[gpu, priority, region] + extra[gpu, priority, region]
        total += amount
        apart = amount / problem.demand_total[gpu, priority] - problem.gpu_share[gpu, region]
        # Where nobody wants the model at this priority there is nothing to spread.
        if problem.demand_total[gpu, priority] > 1e-200:
            cost += problem.priority_cost[priority] * apart * apart
    if problem.overload_unit > 0.0:
        over = max(0.0, total - problem.gpu_supply[gpu, region]) / problem.overload_unit
        cost /= 1.0 + exp(-over)
    return cost


@compiled_part
def storage_cell(problem: PlacementProblem, stored: float, region: int) -> float:
    """Expression 9 for a region, weighted."""
    apart = stored / problem.stored_total - problem.storage_share[region]
    return float(problem.storage_cost * apart * apart)


@compiled
def _fill(problem: PlacementProblem, state: PlacementState) -> None:
    """Everything that follows from the homes."""
    for table in range(len(state.home)):
        state.stored[state.home[table]] += problem.table_bytes[table]
    for job in range(len(problem.training)):
        row = state.bytes_row[job]
        for place in range(problem.table_start[job], problem.table_start[job + 1]):
            table = problem.tables[place]
            state.tables_in[job, state.home[table]] += 1
            if row >= 0:
                state.bytes_in[row, state.home[table]] += problem.table_bytes[table]
        region = plurality(state, job)
        tables = problem.table_start[job + 1] - problem.table_start[job]
        if problem.training[job] and region >= 0 and state.tables_in[job, region] < tables:
            region = -1
        state.job_region[job] = region
        state.sums[READS] += problem.read_cost[job] * read_across(problem, state, job, region, 0.0)
        if region < 0:
            continue
        gpu = problem.gpu_model[job]
        if gpu >= 0:
            state.demand[gpu, problem.priority[job], region] += problem.gpu_hours[job]
            if problem.high[job] and problem.gpu_supply[gpu, region] > 0.0:
                state.sums[AT_HOME] += problem.gpu_hours[job]
        if problem.application[job] >= 0:
            state.cpu[problem.application[job], region] += problem.cpu_hours[job]
    nothing = np.zeros_like(state.demand)
    for region in range(len(state.stored)):
        state.storage_cell_cost[region] = storage_cell(problem, state.stored[region], region)
        for gpu in range(state.demand.shape[0]):
            state.gpu_cell_cost[gpu, region] = gpu_cell(problem, state.demand, nothing, gpu, region)


@compiled_part
def read_across(problem: PlacementProblem, state: PlacementState, job: int, region: int, arriving: float) -> float:
    """Bytes that the job reads from other regions when it is in this one, to which so many of its bytes are coming."""
    if problem.training[job]:
        return problem.read_bytes[job] if region < 0 else 0.0
    if region < 0:
        return 0.0
    return float(problem.read_bytes[job] - state.bytes_in[state.bytes_row[job], region] - arriving)


@compiled_part
def touch(problem: PlacementProblem, scratch: Scratch, job: int, region: int, sign: float) -> float:
    """Notes that the job comes to the region (1.0) or leaves it (-1.0); returns what Expression 6 counts more."""
    counted = 0.0
    regions = scratch.cell_touched.shape[1]
    gpu = problem.gpu_model[job]
    if gpu >= 0:
        hours = sign * problem.gpu_hours[job]
        scratch.demand[gpu, problem.priority[job], region] += hours
        if not scratch.cell_touched[gpu, region]:
            scratch.cell_touched[gpu, region] = True
            scratch.touched_cells[scratch.lengths[0]] = gpu * regions + region
            scratch.lengths[0] += 1
        if problem.high[job] and problem.gpu_supply[gpu, region] > 0.0:
            counted = hours
    application = problem.application[job]
    if application >= 0:
        scratch.cpu[application, region] += sign * problem.cpu_hours[job]
        if not scratch.cpu_touched[application, region]:
            scratch.cpu_touched[application, region] = True
            scratch.touched_cpu[scratch.lengths[1]] = application * regions + region
            scratch.lengths[1] += 1
    return counted


@compiled_part
def collect(
    problem: PlacementProblem, state: PlacementState, scratch: Scratch, table: int, target: int
) -> tuple[float, float]:
    """Fills the scratch with what moving the table changes; returns the change of Expression 1's cost and of Expression 6."""
    source = state.home[table]
    size = problem.table_bytes[table]
    reads = 0.0
    at_home = 0.0
    for place in range(problem.reader_start[table], problem.reader_start[table + 1]):
        job = problem.readers[place]
        before = state.job_region[job]
        after = job_region_after(problem, state, job, source, target)
        arriving = size if after == target else (-size if after == source else 0.0)
        across = read_across(problem, state, job, after, arriving) - read_across(problem, state, job, before, 0.0)
        reads += problem.read_cost[job] * across
        if before == after:
            continue
        if before >= 0:
            at_home += touch(problem, scratch, job, before, -1.0)
        if after >= 0:
            at_home += touch(problem, scratch, job, after, 1.0)
    return reads, at_home


@compiled_part
def clear(scratch: Scratch) -> None:
    """Sets what was touched back to zero."""
    regions = scratch.cell_touched.shape[1]
    for place in range(scratch.lengths[0]):
        gpu, region = divmod(scratch.touched_cells[place], regions)
        scratch.cell_touched[gpu, region] = False
        for priority in range(scratch.demand.shape[1]):
            scratch.demand[gpu, priority, region] = 0.0
    for place in range(scratch.lengths[1]):
        application, region = divmod(scratch.touched_cpu[place], regions)
        scratch.cpu_touched[application, region] = False
        scratch.cpu[application, region] = 0.0
    scratch.lengths[0] = 0
    scratch.lengths[1] = 0


@compiled_part
def price_cells(problem: PlacementProblem, state: PlacementState, scratch: Scratch) -> tuple[float, bool]:
    """What the demand in the scratch does to Expression 2, and whether quotas of GPUs and CPUs allow it."""
    regions = scratch.cell_touched.shape[1]
    legal = True
    gpu_cost = 0.0
    for place in range(scratch.lengths[0]):
        gpu, region = divmod(scratch.touched_cells[place], regions)
        gpu_cost += gpu_cell(problem, state.demand, scratch.demand, gpu, region) - state.gpu_cell_cost[gpu, region]
        if problem.gpu_limited:
            more = 0.0
            total = 0.0
            for priority in range(state.demand.shape[1]):
                more += scratch.demand[gpu, priority, region]
                total += state.demand[gpu, priority, region] + scratch.demand[gpu, priority, region]
            if more > 0.0 and total > problem.gpu_supply[gpu, region]:
                legal = False
    if problem.cpu_limited:
        for place in range(scratch.lengths[1]):
            application, region = divmod(scratch.touched_cpu[place], regions)
            more = scratch.cpu[application, region]
            if more > 0.0 and state.cpu[application, region] + more > problem.cpu_supply[application, region]:
                legal = False
    return gpu_cost, legal


@compiled_part
def price(problem: PlacementProblem, state: PlacementState, scratch: Scratch, table: int, target: int) -> Change:
    """What moving a table to another region would do (Expressions 1 to 6); the state stays as it is.

    A limit that is exceeded already forbids what would exceed it by more, and nothing else.
    """
    source = state.home[table]
    size = problem.table_bytes[table]
    reads, at_home = collect(problem, state, scratch, table, target)
    storage = (
        storage_cell(problem, state.stored[target] + size, target)
        - state.storage_cell_cost[target]
        + storage_cell(problem, state.stored[source] - size, source)
        - state.storage_cell_cost[source]
    )
    legal = not (
        problem.storage_limited and size > 0.0 and state.stored[target] + size > problem.storage_supply[target]
    )
    if at_home < 0.0 and state.sums[AT_HOME] + at_home < problem.home_least * (1.0 - 1e-12):
        legal = False
    gpu_cost, cells_legal = price_cells(problem, state, scratch)
    clear(scratch)
    return Change(reads, gpu_cost, storage, at_home, legal and cells_legal)


@compiled_part
def apply_move(problem: PlacementProblem, state: PlacementState, scratch: Scratch, table: int, target: int) -> None:
    """Moves a table to another region, legal or not."""
    source = state.home[table]
    size = problem.table_bytes[table]
    reads, at_home = collect(problem, state, scratch, table, target)
    state.sums[READS] += reads
    state.sums[AT_HOME] += at_home
    for place in range(problem.reader_start[table], problem.reader_start[table + 1]):
        job = problem.readers[place]
        state.job_region[job] = job_region_after(problem, state, job, source, target)
        state.tables_in[job, source] -= 1
        state.tables_in[job, target] += 1
        row = state.bytes_row[job]
        if row >= 0:
            state.bytes_in[row, source] -= size
            state.bytes_in[row, target] += size
    state.home[table] = target
    state.stored[source] -= size
    state.stored[target] += size
    state.storage_cell_cost[source] = storage_cell(problem, state.stored[source], source)
    state.storage_cell_cost[target] = storage_cell(problem, state.stored[target], target)
    regions = scratch.cell_touched.shape[1]
    for place in range(scratch.lengths[0]):
        gpu, region = divmod(scratch.touched_cells[place], regions)
        for priority in range(state.demand.shape[1]):
            state.demand[gpu, priority, region] += scratch.demand[gpu, priority, region]
            scratch.demand[gpu, priority, region] = 0.0
    for place in range(scratch.lengths[1]):
        application, region = divmod(scratch.touched_cpu[place], regions)
        state.cpu[application, region] += scratch.cpu[application, region]
    for place in range(scratch.lengths[0]):
        gpu, region = divmod(scratch.touched_cells[place], regions)
        state.gpu_cell_cost[gpu, region] = gpu_cell(problem, state.demand, scratch.demand, gpu, region)
    clear(scratch)


@compiled
def evaluate(problem: PlacementProblem, state: PlacementState, scratch: Scratch, table: int, target: int) -> Change:
    """`price`, for Python."""
    return price(problem, state, scratch, table, target)


@compiled
def move(problem: PlacementProblem, state: PlacementState, scratch: Scratch, table: int, target: int) -> None:
    """`apply_move`, for Python."""
    apply_move(problem, state, scratch, table, target)
