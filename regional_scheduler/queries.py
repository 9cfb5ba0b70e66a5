"""A job of a workload as a question to the clusters of a region."""

from __future__ import annotations

from cluster_manager.mechanism import CONSOLIDATED, NO_AFFINITY, Query
from domain.identifiers import TenantId, VirtualClusterId
from domain.rank import Standing
from domain.workload import JobSpecification
from regional_scheduler.region_capacity import RegionCapacity


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
    return Query(
        region.kind_of(job),
        job.tasks,
        CONSOLIDATED if job.consolidate else NO_AFFINITY,
        standing,
        now_s,
        tenant,
        VirtualClusterId(tenant) if within_quota else None,
        within_quota,
    )
