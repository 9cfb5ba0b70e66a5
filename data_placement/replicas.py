"""Extra copies of tables beside their homes (MAST §3.5).

Rule: first copies for jobs that no region could run, the most important first; then a copy of every table outside its
home region against disasters; then the hottest tables per GPU model, within each region's share of what storage is left.

Invariant: copies that exist stay unless they lie in the home; no region stores more than it can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_placement.objective.placement_state import PlacementState
from data_placement.objective.problem import PlacementProblem
from domain.warehouse import Floats, Indices, Integers, Warehouse
from kernels.compiled import compiled, compiled_part


@dataclass(frozen=True, slots=True)
class ReplicaPolicy:
    """Which copies are made. Raises ValueError for a share out of [0, 1]."""

    for_jobs: bool = True
    against_disasters: bool = True
    hot_storage_share: float = 0.5
    """Of the storage that is left, what copies of hot tables may take."""
    correlated_failures: Floats | None = None
    """(R, R) how likely the second region fails with the first, in [0, 1]; None: all pairs alike."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.hot_storage_share <= 1.0:
            raise ValueError(f"hot_storage_share must be between 0 and 1, not {self.hot_storage_share}")


@dataclass(frozen=True, slots=True)
class Replicas:
    """The copies beside the homes, and where jobs can run with them."""

    masks: Integers
    """(T,) bit r: region r is to hold a copy"""
    job_region: Indices
    """(J,) R(job); for training that had none, or no GPUs there, the region that its copies are made for; -1 for none"""
    bytes_for_jobs: float
    bytes_against_disasters: float
    bytes_of_hot_tables: float
    without_disaster_copy: int
    """Tables for which no other region had storage left."""
    jobs_without_region: int
    """Training jobs on GPUs that can run nowhere with all their tables."""


def plan_replicas(
    warehouse: Warehouse, problem: PlacementProblem, state: PlacementState, policy: ReplicaPolicy
) -> Replicas:
    """The copies for a placement. Deterministic: jobs by priority and GPU hours, tables by readers, then by their place."""
    jobs = warehouse.jobs
    home_bit = np.left_shift(np.int64(1), state.home.astype(np.int64))
    masks = warehouse.tables.replicas & ~home_bit
    free = problem.storage_supply - state.stored - _stored_copies(problem, masks)
    job_region = state.job_region.copy()
    for_jobs = 0.0
    if policy.for_jobs:
        order = np.lexsort((np.arange(jobs.count), -jobs.gpu_hours, jobs.priority))
        for_jobs = _copy_for_jobs(problem, state.home, masks, free, job_region, order)
    readers = np.diff(problem.reader_start)
    hottest = np.lexsort((np.arange(len(readers)), -readers))
    disasters, missing = 0.0, 0
    if policy.against_disasters:
        correlation = policy.correlated_failures
        if correlation is None:
            correlation = np.zeros((problem.regions, problem.regions))
        disasters, missing = _copy_elsewhere(problem, state.home, masks, free, hottest, correlation)
    hot = _copy_hot(problem, state.home, masks, free, policy.hot_storage_share)
    runs_nowhere = _runs_nowhere(problem, state.home, masks)
    return Replicas(masks, job_region, for_jobs, disasters, hot, missing, runs_nowhere)


def collocated_hours(problem: PlacementProblem, home: Indices, masks: Integers) -> float:
    """GPU hours of high-priority training for which some region holds all tables and has the GPUs (§5.6, V2)."""
    return _collocated(problem, home, masks)


def _stored_copies(problem: PlacementProblem, masks: Integers) -> Floats:
    """(R,) bytes"""
    return np.array([problem.table_bytes[(masks >> region & 1) > 0].sum() for region in range(problem.regions)])


@compiled_part
def _holds(home: Indices, masks: Integers, table: int, region: int) -> bool:
    return bool(home[table] == region or (masks[table] >> region) & 1 == 1)


@compiled_part
def _holds_all(problem: PlacementProblem, home: Indices, masks: Integers, job: int, region: int) -> bool:
    for place in range(problem.table_start[job], problem.table_start[job + 1]):
        if not _holds(home, masks, problem.tables[place], region):
            return False
    return True


@compiled
def _copy_for_jobs(
    problem: PlacementProblem, home: Indices, masks: Integers, free: Floats, job_region: Indices, order: Integers
) -> float:
    """Copies what training jobs lack to a region that has room for it; returns the bytes.

    The region with the most GPU hours of their model to spare: the paper takes the one with the highest supply, and so
    all such jobs would meet there.
    """
    copied = 0.0
    regions = len(free)
    spare = problem.gpu_supply.copy()
    for job in range(len(problem.training)):
        if problem.gpu_model[job] >= 0 and job_region[job] >= 0:
            spare[problem.gpu_model[job], job_region[job]] -= problem.gpu_hours[job]
    for job in order:
        gpu = problem.gpu_model[job]
        if not problem.training[job] or gpu < 0:
            continue
        if job_region[job] >= 0 and problem.gpu_supply[gpu, job_region[job]] > 0.0:
            continue
        best = -1
        lacking = 0.0
        for region in range(regions):
            if problem.gpu_supply[gpu, region] <= 0.0:
                continue
            missing = 0.0
            for place in range(problem.table_start[job], problem.table_start[job + 1]):
                table = problem.tables[place]
                if not _holds(home, masks, table, region):
                    missing += problem.table_bytes[table]
            if missing > free[region]:
                continue
            # Where all tables are already, nothing needs copying: before all others.
            if (
                best < 0
                or (missing == 0.0) > (lacking == 0.0)
                or ((missing == 0.0) == (lacking == 0.0) and spare[gpu, region] > spare[gpu, best])
            ):
                best = region
                lacking = missing
        if best < 0:
            continue
        for place in range(problem.table_start[job], problem.table_start[job + 1]):
            table = problem.tables[place]
            if not _holds(home, masks, table, best):
                masks[table] |= np.int64(1) << best
                free[best] -= problem.table_bytes[table]
                copied += problem.table_bytes[table]
        if job_region[job] >= 0:
            spare[gpu, job_region[job]] += problem.gpu_hours[job]
        spare[gpu, best] -= problem.gpu_hours[job]
        job_region[job] = best
    return copied


@compiled
def _copy_elsewhere(
    problem: PlacementProblem, home: Indices, masks: Integers, free: Floats, order: Integers, correlation: Floats
) -> tuple[float, int]:
    """A copy of each table that has none, where little fails with its home and much storage is left; bytes, and how many lack one."""
    copied = 0.0
    missing = 0
    for table in order:
        if masks[table] != 0:
            continue
        size = problem.table_bytes[table]
        best = -1
        most = -1.0
        for region in range(len(free)):
            if region == home[table] or free[region] < size:
                continue
            spare = free[region] / problem.storage_supply[region] if problem.storage_supply[region] > 0.0 else 0.0
            worth = (1.0 - correlation[home[table], region]) * spare
            if worth > most:
                most = worth
                best = region
        if best < 0:
            missing += 1
            continue
        masks[table] |= np.int64(1) << best
        free[best] -= size
        copied += size
    return copied, missing


def _copy_hot(problem: PlacementProblem, home: Indices, masks: Integers, free: Floats, share: float) -> float:
    """Copies the tables with the most readers per GPU model to the regions that have it; returns the bytes."""
    supply = problem.gpu_supply.sum(axis=0)
    copied = 0.0
    for gpu in range(len(problem.gpu_supply)):
        hotness = _readers_on(problem, gpu)
        hottest = np.lexsort((np.arange(len(hotness)), -hotness))
        hottest = hottest[hotness[hottest] > 1]
        for region in np.flatnonzero(problem.gpu_supply[gpu] > 0.0).tolist():
            quota = max(0.0, free[region]) * share * problem.gpu_supply[gpu, region] / supply[region]
            used = _copy_until(problem, home, masks, region, hottest, quota)
            free[region] -= used
            copied += used
    return copied


@compiled
def _readers_on(problem: PlacementProblem, gpu: int) -> Integers:
    """(T,) how many jobs on this GPU model read each table."""
    counts = np.zeros(len(problem.table_bytes), np.int64)
    for table in range(len(counts)):
        for place in range(problem.reader_start[table], problem.reader_start[table + 1]):
            if problem.gpu_model[problem.readers[place]] == gpu:
                counts[table] += 1
    return counts


@compiled
def _copy_until(
    problem: PlacementProblem, home: Indices, masks: Integers, region: int, order: Integers, quota: float
) -> float:
    """Copies tables in this order to the region until the next one exceeds the quota; returns the bytes."""
    used = 0.0
    for table in order:
        if _holds(home, masks, table, region):
            continue
        if used + problem.table_bytes[table] > quota:
            break
        masks[table] |= np.int64(1) << region
        used += problem.table_bytes[table]
    return used


@compiled
def _runs_nowhere(problem: PlacementProblem, home: Indices, masks: Integers) -> int:
    count = 0
    for job in range(len(problem.training)):
        gpu = problem.gpu_model[job]
        if not problem.training[job] or gpu < 0:
            continue
        runs = False
        for region in range(problem.gpu_supply.shape[1]):
            if problem.gpu_supply[gpu, region] > 0.0 and _holds_all(problem, home, masks, job, region):
                runs = True
                break
        if not runs:
            count += 1
    return count


@compiled
def _collocated(problem: PlacementProblem, home: Indices, masks: Integers) -> float:
    hours = 0.0
    for job in range(len(problem.training)):
        if not problem.high[job]:
            continue
        for region in range(problem.gpu_supply.shape[1]):
            if problem.gpu_supply[problem.gpu_model[job], region] > 0.0 and _holds_all(
                problem, home, masks, job, region
            ):
                hours += problem.gpu_hours[job]
                break
    return hours
