"""A job of a workload as a question to the clusters of a region."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from cluster_manager.mechanism import CONSOLIDATED, FRAGMENTS, NO_AFFINITY, Affinity, AffinityLevel, Query
from domain.affinity import NO_JOB_AFFINITY, CellAffinity, JobAffinity
from domain.cells import MACHINE_LEVEL, RACK_LEVEL, virtual_cluster_of_tenant
from domain.identifiers import TenantId
from domain.rank import Standing
from domain.workload import JobSpecification
from regional_scheduler.region_capacity import RegionCapacity

PREFERABLY_ON_ONE_MACHINE = CellAffinity(MACHINE_LEVEL, hard=False)
_LEVELS = MappingProxyType({MACHINE_LEVEL: AffinityLevel.MACHINE, RACK_LEVEL: AffinityLevel.RACK})


def affinity_of(job: JobSpecification) -> Affinity:
    """How close together the tasks are to be: the one place that says what the job's fields come to.

    To be consolidated is to be preferably within one machine. Of what else is said, the level of the machine or the rack
    is for every mechanism, and all of it for those that know cells. A preference for another level is for the others
    one to be close together.
    """
    said = job.affinity
    if said is NO_JOB_AFFINITY or said.is_plain:
        if job.consolidate:
            return CONSOLIDATED
        return FRAGMENTS if job.fills_fragments else NO_AFFINITY
    if job.consolidate and said.within is None:
        said = replace(said, within=PREFERABLY_ON_ONE_MACHINE)
    if said == JobAffinity(PREFERABLY_ON_ONE_MACHINE):
        return CONSOLIDATED
    return Affinity(_level_of(said), said.is_hard, said)


def _level_of(said: JobAffinity) -> AffinityLevel:
    """The level for mechanisms that know machines and racks only."""
    if said.is_hard and not replace(said, within=None).is_hard and said.within is not None:
        return _LEVELS.get(said.within.level, AffinityLevel.CLUSTER)
    if said.is_hard or not any(True for _ in said.affinities()):
        return AffinityLevel.CLUSTER
    return _LEVELS.get(said.within.level, AffinityLevel.MACHINE) if said.within is not None else AffinityLevel.MACHINE


def query_of(
    region: RegionCapacity,
    job: JobSpecification,
    tenant: TenantId,
    standing: Standing,
    now_s: float,
    *,
    within_quota: bool,
) -> Query:
    """The question. Within its quota a workload is guaranteed and uses its tenant's virtual cluster.

    Raises ValueError for a job that asks for no tasks, for negative amounts, or for neither GPUs nor a stated amount of
    CPUs and memory.
    """
    affinity = affinity_of(job)
    return Query(
        region.kind_of(job),
        job.tasks,
        affinity,
        standing,
        now_s,
        tenant,
        virtual_cluster_of_tenant(tenant) if within_quota else None,
        within_quota,
        # What must be close together, be it decided for its skew, is never split.
        across_clusters=job.across_clusters and not affinity.hard,
    )
