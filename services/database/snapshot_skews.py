"""The skews that attempts have reported, put into a snapshot: in it workloads declare what the service has learnt of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cluster_manager.skew.consolidation import may_be_consolidated
from domain.identifiers import JobName, WorkloadId
from domain.model_profile import KnownSkew, ModelProfile
from domain.snapshot import Snapshot
from domain.workload import JobSpecification, Workload
from services.database.connection import AnyConnection
from services.database.profile_store import NamedWorkload, known_skews


async def with_known_skews(connection: AnyConnection, snapshot: Snapshot) -> Snapshot:
    """The snapshot with a profile for each job that declares none and may be consolidated by what was reported of it."""
    workloads = [entry.workload for entry in snapshot.queue] + [entry.workload for entry in snapshot.running]
    wanted = [
        NamedWorkload(workload.workload, workload.specification.tenant, workload.specification.name)
        for workload in workloads
        if any(_lacks_profile(job) for job in workload.specification.jobs)
    ]
    known = await known_skews(connection, wanted)
    if not known:
        return snapshot
    return replace(
        snapshot,
        queue=tuple(replace(entry, workload=_with_skews(entry.workload, known)) for entry in snapshot.queue),
        running=tuple(replace(entry, workload=_with_skews(entry.workload, known)) for entry in snapshot.running),
    )


def _lacks_profile(job: JobSpecification) -> bool:
    return job.profile is None and may_be_consolidated(job)


def _with_skews(workload: Workload, known: Mapping[WorkloadId, Mapping[JobName, KnownSkew]]) -> Workload:
    skews = known.get(workload.workload)
    if skews is None:
        return workload
    jobs = tuple(
        replace(job, profile=ModelProfile(skews[job.name].skew)) if job.name in skews and _lacks_profile(job) else job
        for job in workload.specification.jobs
    )
    return replace(workload, specification=replace(workload.specification, jobs=jobs))
