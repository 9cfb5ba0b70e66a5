"""Extra copies of tables beside their homes (MAST §3.5).

Rule: first copies for jobs that no region could run, the most important first; then a copy of every table outside its
home region against disasters; then the hottest tables per GPU model, within each region's share of what storage is left.

Invariant: copies that exist stay unless they lie in the home; no region stores more than it can.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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
    hot_storage_share: float = 0.1
    """Of the storage that is left, what copies of hot tables may take."""
    correlated_failures: Floats | None = None
    """(R, R) how likely the second region fails with the first, in [0, 1]; None: all pairs alike."""
    partitions: bool = False
    """Copies for jobs hold only the newest partitions, as many as the jobs read."""
    spare_hardware: bool = True
    """A copy against disasters goes where GPUs are to spare for the jobs that read the table."""
    spare_gpu_share: Floats | None = None
    """(R,) the part of its GPU hours that a region keeps for that; NaN, or None for all: what demand leaves."""

    def __post_init__(self) -> None:
        failures = self.correlated_failures
        if failures is not None and not ((failures >= 0.0) & (failures <= 1.0)).all():
            raise ValueError("correlated_failures must be between 0 and 1")
        spare = self.spare_gpu_share
        if spare is not None and not (np.isnan(spare) | ((spare >= 0.0) & (spare <= 1.0))).all():
            raise ValueError("spare_gpu_share must be between 0 and 1")
        if not 0.0 <= self.hot_storage_share <= 1.0:
            raise ValueError(f"hot_storage_share must be between 0 and 1, not {self.hot_storage_share}")


class DecidedCopies(NamedTuple):
    """Copies that a solver has decided together with the homes."""

    masks: Integers
    """(T,)"""
    job_region: Indices
    """(J,) where jobs run with them; -1: where their tables are at home, if anywhere"""


class PartialCopies(NamedTuple):
    """Copies of the newest partitions alone; a copy for a job that reads more serves those that read less."""

    wanted: Floats
    """(pairs,) the part of the table's bytes that a job reads; empty: whole tables only"""
    held: Floats
    """(T, R) the part that a region has beside whole copies; (0, R) where there are whole tables only"""


def whole_tables(problem: PlacementProblem) -> PartialCopies:
    """No copy is partial."""
    return PartialCopies(np.zeros(0), np.zeros((0, problem.regions)))


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
    masks_for_jobs: Integers
    """(T,) those of the copies that are made for jobs without a region"""
    masks_against_disasters: Integers
    """(T,) those that are made against disasters"""
    parts: PartialCopies | None = None
    """Copies of the newest partitions; None: there are none"""


def plan_replicas(
    warehouse: Warehouse,
    problem: PlacementProblem,
    state: PlacementState,
    policy: ReplicaPolicy,
    decided: DecidedCopies | None = None,
) -> Replicas:
    """The copies for a placement, those that a solver has decided included. Deterministic: jobs by priority and GPU hours, tables by readers, then by their place."""
    jobs = warehouse.jobs
    home_bit = np.left_shift(np.int64(1), state.home.astype(np.int64))
    existing = warehouse.tables.replicas & ~home_bit
    masks = existing.copy()
    if decided is not None:
        masks |= decided.masks & ~home_bit
    free = problem.storage_supply - state.stored - _stored_copies(problem, masks)
    job_region = state.job_region.copy()
    if decided is not None:
        job_region = np.where(decided.job_region >= 0, decided.job_region, job_region)
    for_jobs = float(_stored_copies(problem, masks & ~existing).sum())
    parts = whole_tables(problem)
    if policy.partitions and jobs.newest_share is not None:
        parts = PartialCopies(jobs.newest_share, np.zeros((warehouse.tables.count, problem.regions)))
    if policy.for_jobs:
        order = np.lexsort((np.arange(jobs.count), -jobs.gpu_hours, jobs.priority))
        for_jobs += _copy_for_jobs(problem, state.home, masks, parts, free, job_region, order)
    readers = np.diff(problem.reader_start)
    hottest = np.lexsort((np.arange(len(readers)), -readers))
    made_for_jobs = masks & ~existing
    disasters, missing = 0.0, 0
    if policy.against_disasters:
        correlation = policy.correlated_failures
        if correlation is None:
            correlation = np.zeros((problem.regions, problem.regions))
        spare = _spare_after_disasters(problem, job_region, policy.spare_gpu_share)
        disasters, missing = _copy_elsewhere(
            problem, state.home, masks, parts, free, hottest, correlation, spare, policy.spare_hardware
        )
    made_against_disasters = masks & ~existing & ~made_for_jobs
    hot = _copy_hot(problem, state.home, masks, parts, free, policy.hot_storage_share)
    runs_nowhere = _runs_nowhere(problem, state.home, masks, parts)
    return Replicas(
        masks,
        job_region,
        for_jobs,
        disasters,
        hot,
        missing,
        runs_nowhere,
        masks_for_jobs=made_for_jobs,
        masks_against_disasters=made_against_disasters,
        parts=parts if len(parts.wanted) else None,
    )


def collocated_hours(
    problem: PlacementProblem, home: Indices, masks: Integers, parts: PartialCopies | None = None
) -> float:
    """GPU hours of high-priority training for which some region holds all that is read and has the GPUs (§5.6, V2)."""
    return _collocated(problem, home, masks, whole_tables(problem) if parts is None else parts)


def _stored_copies(problem: PlacementProblem, masks: Integers) -> Floats:
    """(R,) bytes"""
    return np.array([problem.table_bytes[(masks >> region & 1) > 0].sum() for region in range(problem.regions)])


@compiled_part
def _holds(home: Indices, masks: Integers, table: int, region: int) -> bool:
    return bool(home[table] == region or (masks[table] >> region) & 1 == 1)


@compiled_part
def _missing_share(
    problem: PlacementProblem, home: Indices, masks: Integers, parts: PartialCopies, pair: int, region: int
) -> float:
    """Which part of its table a pair of a job and a table lacks in the region."""
    table = problem.tables[pair]
    if _holds(home, masks, table, region):
        return 0.0
    if len(parts.wanted) == 0:
        return 1.0
    return float(max(0.0, parts.wanted[pair] - parts.held[table, region]))


@compiled_part
def _holds_all(
    problem: PlacementProblem, home: Indices, masks: Integers, parts: PartialCopies, job: int, region: int
) -> bool:
    for pair in range(problem.table_start[job], problem.table_start[job + 1]):
        if _missing_share(problem, home, masks, parts, pair, region) > 0.0:
            return False
    return True


@compiled_part
def _bytes_to_complete(problem: PlacementProblem, parts: PartialCopies, table: int, region: int) -> float:
    """What a whole copy takes beside the partitions that are there."""
    if len(parts.wanted) == 0:
        return float(problem.table_bytes[table])
    return float(problem.table_bytes[table] * (1.0 - parts.held[table, region]))


@compiled_part
def _complete(masks: Integers, parts: PartialCopies, table: int, region: int) -> None:
    """Notes a whole copy."""
    masks[table] |= np.int64(1) << region
    if len(parts.wanted) > 0:
        parts.held[table, region] = 0.0


@compiled_part
def _region_for_job(
    problem: PlacementProblem,
    home: Indices,
    masks: Integers,
    parts: PartialCopies,
    free: Floats,
    spare: Floats,
    job: int,
) -> int:
    """The region with its GPUs, and room for what it lacks, that lacks the fewest bytes; of equal ones that with most to spare.

    Regions with GPU hours to spare for the job come before all others.
    """
    gpu = problem.gpu_model[job]
    best = -1
    fewest = 0.0
    for region in range(len(free)):
        if problem.gpu_supply[gpu, region] <= 0.0:
            continue
        missing = 0.0
        for pair in range(problem.table_start[job], problem.table_start[job + 1]):
            share = _missing_share(problem, home, masks, parts, pair, region)
            missing += share * problem.table_bytes[problem.tables[pair]]
        if missing > free[region]:
            continue
        fits = spare[gpu, region] >= problem.gpu_hours[job]
        best_fits = best >= 0 and spare[gpu, best] >= problem.gpu_hours[job]
        if (
            best < 0
            or (fits and not best_fits)
            or (
                fits == best_fits
                and (missing < fewest or (missing == fewest and spare[gpu, region] > spare[gpu, best]))
            )
        ):
            best = region
            fewest = missing
    return best


@compiled
def _copy_for_jobs(
    problem: PlacementProblem,
    home: Indices,
    masks: Integers,
    parts: PartialCopies,
    free: Floats,
    job_region: Indices,
    order: Integers,
) -> float:
    """Copies what training jobs lack to a region that has room for it; returns the bytes.

    The paper takes the region with the highest supply, and so all such jobs would meet there. Here what is to spare counts:
    what jobs of the same priority, and of higher ones, leave. Where that is enough the copy is made that costs the least storage, so
    that jobs that share tables share copies, too.
    """
    copied = 0.0
    spare = problem.gpu_supply.copy()
    placed = np.zeros((*problem.demand_total.shape, len(free)))
    for job in range(len(problem.training)):
        if problem.gpu_model[job] >= 0 and job_region[job] >= 0:
            placed[problem.gpu_model[job], problem.priority[job], job_region[job]] += problem.gpu_hours[job]
    counted = 0
    for job in order:
        gpu = problem.gpu_model[job]
        while counted <= problem.priority[job]:
            spare -= placed[:, counted]
            counted += 1
        if not problem.training[job] or gpu < 0:
            continue
        if job_region[job] >= 0 and problem.gpu_supply[gpu, job_region[job]] > 0.0:
            continue
        best = _region_for_job(problem, home, masks, parts, free, spare, job)
        if best < 0:
            continue
        for pair in range(problem.table_start[job], problem.table_start[job + 1]):
            share = _missing_share(problem, home, masks, parts, pair, best)
            if share == 0.0:
                continue
            table = problem.tables[pair]
            free[best] -= share * problem.table_bytes[table]
            copied += share * problem.table_bytes[table]
            if len(parts.wanted) == 0 or parts.wanted[pair] >= 1.0:
                _complete(masks, parts, table, best)
            else:
                parts.held[table, best] = parts.wanted[pair]
        if job_region[job] >= 0:
            spare[gpu, job_region[job]] += problem.gpu_hours[job]
        spare[gpu, best] -= problem.gpu_hours[job]
        job_region[job] = best
    return copied


def _spare_after_disasters(problem: PlacementProblem, job_region: Indices, kept: Floats | None) -> Floats:
    """(failing regions, G, R) GPU hours that are left in each region for the jobs of one that fails. `kept`: (R,) shares."""
    spare = problem.gpu_supply.copy()
    placed = np.flatnonzero((job_region >= 0) & (problem.gpu_model >= 0))
    np.subtract.at(spare, (problem.gpu_model[placed], job_region[placed]), problem.gpu_hours[placed])
    if kept is not None:
        spare = np.where(np.isnan(kept), spare, problem.gpu_supply * kept)
    return np.repeat(np.maximum(spare, 0.0)[None], problem.regions, axis=0)


@compiled_part
def _need_of(problem: PlacementProblem, table: int, need: Floats) -> None:
    """(G,) GPU hours of the training jobs that read the table, each job's hours in equal parts for its tables."""
    for gpu in range(len(need)):
        need[gpu] = 0.0
    for place in range(problem.reader_start[table], problem.reader_start[table + 1]):
        job = problem.readers[place]
        if problem.training[job] and problem.gpu_model[job] >= 0:
            need[problem.gpu_model[job]] += problem.gpu_hours[job] / (
                problem.table_start[job + 1] - problem.table_start[job]
            )


@compiled_part
def _readiness(spare: Floats, need: Floats, home: int, region: int) -> float:
    """Which part of the need the region could take over from the home; 1 where there is none."""
    wanted = 0.0
    met = 0.0
    for gpu in range(len(need)):
        wanted += need[gpu]
        met += min(need[gpu], spare[home, gpu, region])
    return float(met / wanted) if wanted > 0.0 else 1.0


_WITHOUT_HARDWARE = 0.1
"""What a region without any GPUs to spare is worth, beside one that could take over all jobs."""


@compiled
def _copy_elsewhere(
    problem: PlacementProblem,
    home: Indices,
    masks: Integers,
    parts: PartialCopies,
    free: Floats,
    order: Integers,
    correlation: Floats,
    spare: Floats,
    by_hardware: bool,
) -> tuple[float, int]:
    """A copy of each table that has none; bytes, and how many lack one.

    Where little fails with its home, much storage is left, and GPUs are to spare for its jobs, which then take them.
    """
    copied = 0.0
    missing = 0
    need = np.zeros(spare.shape[1])
    for table in order:
        if masks[table] != 0:
            continue
        _need_of(problem, table, need)
        best = -1
        most = -1.0
        for region in range(len(free)):
            if region == home[table] or free[region] < _bytes_to_complete(problem, parts, table, region):
                continue
            left = free[region] / problem.storage_supply[region] if problem.storage_supply[region] > 0.0 else 0.0
            worth = (1.0 - correlation[home[table], region]) * left
            if by_hardware:
                ready = _readiness(spare, need, home[table], region)
                worth *= _WITHOUT_HARDWARE + (1.0 - _WITHOUT_HARDWARE) * ready
            if worth > most:
                most = worth
                best = region
        if best < 0:
            missing += 1
            continue
        size = _bytes_to_complete(problem, parts, table, best)
        _complete(masks, parts, table, best)
        free[best] -= size
        copied += size
        for gpu in range(len(need)):
            spare[home[table], gpu, best] = max(0.0, spare[home[table], gpu, best] - need[gpu])
    return copied, missing


def _copy_hot(
    problem: PlacementProblem, home: Indices, masks: Integers, parts: PartialCopies, free: Floats, share: float
) -> float:
    """Copies the tables with the most readers per GPU model to the regions that have it; returns the bytes."""
    supply = problem.gpu_supply.sum(axis=0)
    copied = 0.0
    for gpu in range(len(problem.gpu_supply)):
        hotness = _readers_on(problem, gpu)
        # By readers for a byte: for one large table a thousand small ones are everywhere, with as many readers each.
        worth = hotness / np.maximum(problem.table_bytes, 1.0)
        hottest = np.lexsort((np.arange(len(hotness)), -worth))
        hottest = hottest[hotness[hottest] > 1]
        for region in np.flatnonzero(problem.gpu_supply[gpu] > 0.0).tolist():
            quota = max(0.0, free[region]) * share * problem.gpu_supply[gpu, region] / supply[region]
            used = _copy_until(problem, home, masks, parts, region, hottest, quota)
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
    problem: PlacementProblem,
    home: Indices,
    masks: Integers,
    parts: PartialCopies,
    region: int,
    order: Integers,
    quota: float,
) -> float:
    """Copies tables in this order to the region, those that the rest of the quota has room for; returns the bytes."""
    used = 0.0
    for table in order:
        if _holds(home, masks, table, region):
            continue
        size = _bytes_to_complete(problem, parts, table, region)
        if used + size > quota:
            continue
        _complete(masks, parts, table, region)
        used += size
    return used


@compiled
def _runs_nowhere(problem: PlacementProblem, home: Indices, masks: Integers, parts: PartialCopies) -> int:
    count = 0
    for job in range(len(problem.training)):
        gpu = problem.gpu_model[job]
        if not problem.training[job] or gpu < 0:
            continue
        runs = False
        for region in range(problem.gpu_supply.shape[1]):
            if problem.gpu_supply[gpu, region] > 0.0 and _holds_all(problem, home, masks, parts, job, region):
                runs = True
                break
        if not runs:
            count += 1
    return count


@compiled
def _collocated(problem: PlacementProblem, home: Indices, masks: Integers, parts: PartialCopies) -> float:
    hours = 0.0
    for job in range(len(problem.training)):
        if not problem.high[job]:
            continue
        for region in range(problem.gpu_supply.shape[1]):
            if problem.gpu_supply[problem.gpu_model[job], region] > 0.0 and _holds_all(
                problem, home, masks, parts, job, region
            ):
                hours += problem.gpu_hours[job]
                break
    return hours
