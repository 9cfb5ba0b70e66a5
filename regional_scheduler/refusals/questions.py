"""What the memory of refusals is asked: made once for all workloads that ask alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cluster_manager.capacity.machine_shapes import MOST_GPUS
from cluster_manager.capacity.tables import Integers
from cluster_manager.capacity.task_kinds import MOST_OF_ALL, MOST_TASKS
from cluster_manager.mechanism import Query
from domain.affinity import JobAffinity
from domain.identifiers import ANY_GPU_MODEL, TenantId
from domain.rank import Standing
from domain.resources import TaskResources, request_mebibytes, request_millicpus
from domain.workload import JobSpecification, WorkloadSpecification
from regional_scheduler.queries import query_of
from regional_scheduler.refusals.entries import Group, RefusedJob, Scope, standing_column
from regional_scheduler.region_capacity import RegionCapacity

Alike: TypeAlias = tuple[tuple[tuple[int, TaskResources, bool, JobAffinity, bool], ...], TenantId, bool, int]
"""Tasks, resources, consolidation and affinity of each job, whether it may be split, tenant, within quota, class of the run time:
all that a question depends on."""
OPEN_TO_IT = 0
"""The class of run times of a question for whom nothing is kept for others: only what holds in spite of that is its answer."""

ANY_STANDING = Standing(0, 0)
"""A question is the same at all standings; this one stands in its queries."""


@dataclass(slots=True, eq=False)
class AskedJob:
    """One job of a question, and what the memory found out about it."""

    groups: tuple[Group, ...]
    """Its own, and the one whose refusals hold for it, too: where any GPU model would have done."""
    row: Integers  # as in the table of its group, at the standing of the last time
    query: Query
    counts: Integers | None = None
    """[cluster] For how many of its tasks there is capacity without evictions, if that is counted."""
    forgotten: int = -1
    """How many counts the region had forgotten when these were handed out."""
    short_since: int = -1
    """How much had been released in the region when too little was counted last, ..."""
    short_at: Standing = ANY_STANDING
    """... and at which standing."""
    known: RefusedJob | None = None
    """The entry that was the answer last time."""


@dataclass(slots=True, eq=False)
class Question:
    """A workload as a region is asked for a place for it, at whatever standing."""

    jobs: tuple[AskedJob, ...]
    guaranteed: bool


def question_about(
    region: RegionCapacity, specification: WorkloadSpecification, run_time: int, *, within_quota: bool
) -> Question:
    """The question. `run_time` is its class, or `OPEN_TO_IT`. Raises ValueError for a job that cannot be planned: see `plan_workload`."""
    asked: list[AskedJob] = []
    for job in specification.jobs:
        query = query_of(region, job, specification.tenant, ANY_STANDING, 0.0, within_quota=within_quota)
        asked.append(AskedJob(_groups_of(job.resources, scope_of(region, query)), _row_of(job, query, run_time), query))
    return Question(tuple(asked), within_quota)


def scope_of(region: RegionCapacity, query: Query) -> Scope:
    """What the mechanisms of all clusters look at beside the size, the standing and whether the job is guaranteed."""
    mechanisms = zip(region.mechanisms, region.clusters, strict=True)
    return tuple([mechanism.refusal_scope(query, cluster) for mechanism, cluster in mechanisms])


def alike(specification: WorkloadSpecification, run_time: int, *, within_quota: bool) -> Alike:
    """Workloads of which this is the same ask the same."""
    jobs = tuple(
        [(job.tasks, job.resources, job.consolidate, job.affinity, job.across_clusters) for job in specification.jobs]
    )
    return jobs, specification.tenant, within_quota, run_time


def _groups_of(resources: TaskResources, scope: Scope) -> tuple[Group, ...]:
    model = resources.gpu_model if resources.gpus > 0 else ANY_GPU_MODEL
    shares = resources.cpus is None, resources.memory_gib is None
    of_any_model = ANY_GPU_MODEL, *shares, scope
    return (of_any_model,) if model == ANY_GPU_MODEL else ((model, *shares, scope), of_any_model)


def _row_of(job: JobSpecification, query: Query, run_time: int) -> Integers:
    """Amounts that no machine has are all alike."""
    resources = job.resources
    row = (
        min(job.tasks, MOST_TASKS + 1),
        min(resources.gpus, MOST_GPUS + 1),
        0 if resources.cpus is None else min(request_millicpus(resources.cpus), MOST_OF_ALL),
        0 if resources.memory_gib is None else min(request_mebibytes(resources.memory_gib), MOST_OF_ALL),
        0 if query.guaranteed else 1,
        standing_column(query.standing),
        0 if query.across_clusters else 1,
        run_time,
    )
    return np.array(row, np.int64)
