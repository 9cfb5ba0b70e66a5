"""Whether the jobs of a workload are consolidated, and why: as a region that is asked for a place now would decide it."""

from __future__ import annotations

from cluster_manager.skew.consolidation import (
    ConsolidationReason,
    consolidation_of,
    consolidation_sentence,
)
from services.database.connection import AnyConnection
from services.database.packlimit_store import load_packlimit
from services.database.profile_store import NamedWorkload, known_skews
from services.database.workload_reader import StoredWorkload
from services.wire.workloads import specification_from_proto
from topmast.v1 import workload_pb2


async def consolidations(
    connection: AnyConnection, stored: StoredWorkload, packlimit: float | None, trial_s: float | None = None
) -> list[workload_pb2.Consolidation]:
    """Of its jobs of several tasks with GPUs; `packlimit` None: the one that was learnt last; `trial_s` as in the settings."""
    specification = specification_from_proto(workload_pb2.WorkloadSpecification.FromString(stored.specification))
    decided = {job.name: consolidation_of(job, None, 0.0) for job in specification.jobs}
    if all(one.reason is ConsolidationReason.ALONE for one in decided.values()):
        return []
    wanted = NamedWorkload(stored.workload, specification.tenant, specification.name)
    known = (await known_skews(connection, [wanted])).get(stored.workload, {})
    limit = packlimit if packlimit is not None else (await load_packlimit(connection)).limit
    messages = []
    for job in specification.jobs:
        if decided[job.name].reason is ConsolidationReason.ALONE:
            continue
        one = consolidation_of(job, known.get(job.name), limit)
        messages.append(
            workload_pb2.Consolidation(
                job=job.name,
                consolidate=one.consolidate,
                reason=one.reason,
                skew=None if one.known is None else one.known.skew,
                skew_source="" if one.known is None else one.known.source,
                packlimit=limit,
                sentence=consolidation_sentence(one, limit, trial_s),
            )
        )
    return messages
