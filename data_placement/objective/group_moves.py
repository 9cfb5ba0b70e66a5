"""What moving several tables at once would do, without moving them.

Rule: every job that reads one of the tables is looked at once, however many of them it reads; cells of demand are priced
once at the end. So a group costs as much as its pairs of a table and a job, and a move that is not made changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_placement.objective.placement_state import (
    AT_HOME,
    Change,
    PlacementState,
    Scratch,
    clear,
    price_cells,
    read_across,
    storage_cell,
    touch,
)
from data_placement.objective.problem import PlacementProblem
from domain.warehouse import Floats, Indices
from kernels.compiled import compiled, compiled_part

MOST_PAIRS = 32_768
"""Pairs of a table and a job in one group; so every step of a search ends soon."""


class GroupScratch(NamedTuple):
    """Room for a group; between two evaluations the slots, the counts and the bytes are zero."""

    slot_of_job: Indices
    """(J,) from 1; 0: none"""
    jobs: Indices
    """(pairs,) the job of each slot"""
    last_target: Indices
    """(pairs,) where a table of the job goes"""
    tables: Indices
    """(pairs, R) how many of the job's tables come to a region"""
    bytes: Floats
    """(pairs, R)"""
    stored: Floats
    """(R,) bytes that come to a region"""


def group_scratch_of(problem: PlacementProblem) -> GroupScratch:
    """Room for groups of at most `MOST_PAIRS` pairs."""
    regions = problem.regions
    return GroupScratch(
        slot_of_job=np.zeros(len(problem.training), np.int32),
        jobs=np.zeros(MOST_PAIRS, np.int32),
        last_target=np.zeros(MOST_PAIRS, np.int32),
        tables=np.zeros((MOST_PAIRS, regions), np.int32),
        bytes=np.zeros((MOST_PAIRS, regions)),
        stored=np.zeros(regions),
    )


@compiled_part
def pairs_of(problem: PlacementProblem, table: int) -> int:
    """How many jobs read the table."""
    return int(problem.reader_start[table + 1] - problem.reader_start[table])


@compiled_part
def price_group(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    tables: Indices,
    targets: Indices,
    length: int,
) -> Change:
    """What moving the first tables, each once, to these regions would do; at most `MOST_PAIRS` pairs.

    Legal by the same rule as a single move: what a limit forbids is decided by what a region has more in the end.
    """
    storage, legal = _price_storage(problem, state, group, tables, targets, length)
    if not legal:
        return Change(0.0, 0.0, 0.0, 0.0, False)
    reads, at_home = collect_group(problem, state, scratch, group, tables, targets, length)
    if at_home < 0.0 and state.sums[AT_HOME] + at_home < problem.home_least * (1.0 - 1e-12):
        legal = False
    gpu_cost, cells_legal = price_cells(problem, state, scratch)
    clear(scratch)
    return Change(reads, gpu_cost, storage, at_home, legal and cells_legal)


@compiled_part
def collect_group(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    tables: Indices,
    targets: Indices,
    length: int,
) -> tuple[float, float]:
    """Fills the scratch with what moving the tables changes; returns the change of Expression 1's cost and of Expression 6."""
    slots = _collect_jobs(problem, state, group, tables, targets, length)
    reads = 0.0
    at_home = 0.0
    for slot in range(slots):
        job = group.jobs[slot]
        before = state.job_region[job]
        after = _region_after(problem, state, group, job, slot)
        arriving = group.bytes[slot, after] if after >= 0 else 0.0
        across = read_across(problem, state, job, after, arriving) - read_across(problem, state, job, before, 0.0)
        reads += problem.read_cost[job] * across
        if before != after:
            if before >= 0:
                at_home += touch(problem, scratch, job, before, -1.0)
            if after >= 0:
                at_home += touch(problem, scratch, job, after, 1.0)
        group.slot_of_job[job] = 0
        for region in range(len(state.stored)):
            group.tables[slot, region] = 0
            group.bytes[slot, region] = 0.0
    return reads, at_home


@compiled_part
def _price_storage(
    problem: PlacementProblem,
    state: PlacementState,
    group: GroupScratch,
    tables: Indices,
    targets: Indices,
    length: int,
) -> tuple[float, bool]:
    for index in range(length):
        table = tables[index]
        size = problem.table_bytes[table]
        group.stored[state.home[table]] -= size
        group.stored[targets[index]] += size
    cost = 0.0
    legal = True
    for region in range(len(state.stored)):
        more = group.stored[region]
        if more == 0.0:
            continue
        cost += storage_cell(problem, state.stored[region] + more, region) - state.storage_cell_cost[region]
        if problem.storage_limited and more > 0.0 and state.stored[region] + more > problem.storage_supply[region]:
            legal = False
        group.stored[region] = 0.0
    return cost, legal


@compiled_part
def _collect_jobs(
    problem: PlacementProblem,
    state: PlacementState,
    group: GroupScratch,
    tables: Indices,
    targets: Indices,
    length: int,
) -> int:
    """Gives each job that reads one of the tables a slot, with what comes to and leaves each region; returns how many."""
    slots = 0
    for index in range(length):
        table = tables[index]
        source, target = state.home[table], targets[index]
        if source == target:
            continue
        for place in range(problem.reader_start[table], problem.reader_start[table + 1]):
            job = problem.readers[place]
            slot = group.slot_of_job[job] - 1
            if slot < 0:
                slot = slots
                slots += 1
                group.slot_of_job[job] = slots
                group.jobs[slot] = job
            group.last_target[slot] = target
            group.tables[slot, source] -= 1
            group.tables[slot, target] += 1
            if state.bytes_row[job] >= 0:
                group.bytes[slot, source] -= problem.table_bytes[table]
                group.bytes[slot, target] += problem.table_bytes[table]
    return slots


@compiled_part
def _region_after(problem: PlacementProblem, state: PlacementState, group: GroupScratch, job: int, slot: int) -> int:
    """R(job) when the group has moved."""
    if problem.training[job]:
        # All its tables together are where any of them goes.
        region = group.last_target[slot]
        tables = problem.table_start[job + 1] - problem.table_start[job]
        return int(region) if state.tables_in[job, region] + group.tables[slot, region] == tables else -1
    best = -1
    most = 0
    for region in range(len(state.stored)):
        count = state.tables_in[job, region] + group.tables[slot, region]
        if count > most:
            most = count
            best = region
    return best


@compiled
def evaluate_group(
    problem: PlacementProblem,
    state: PlacementState,
    scratch: Scratch,
    group: GroupScratch,
    tables: Indices,
    targets: Indices,
) -> Change:
    """`price_group`, for Python."""
    return price_group(problem, state, scratch, group, tables, targets, len(tables))
