"""Why there is no plan where clusters are divided into cells: the cells asked for and owned, told apart from the lack of room.

GPUs may be idle in plenty and none of them be its tenant's, or all of them in cells that are too small: counts say nothing
about that. Asked only where somebody is told, for it costs a search.
"""

from __future__ import annotations

from dataclasses import replace

from cluster_manager.mechanism import ExplainsWaiting, WhyWaiting
from domain.diagnosis import Reason
from domain.identifiers import ClusterId
from domain.rank import Standing
from domain.workload import WorkloadSpecification
from regional_scheduler.queries import query_of
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionCapacity

_PERMANENCE = tuple(Reason)


def in_words_of_cells(
    region: RegionCapacity,
    specification: WorkloadSpecification,
    refusal: Refusal,
    standing: Standing,
    now_s: float,
    *,
    within_quota: bool,
) -> Refusal:
    """The refusal with what clusters divided into cells say of the job that finds no place; as it was where there are none.

    A cluster without cells that is large enough comes closer than any whose cells are not.
    """
    jobs = [job for job in specification.jobs if job.name == refusal.job]
    if not region.in_cells or not jobs:
        return refusal
    query = query_of(region, jobs[0], specification.tenant, standing, now_s, within_quota=within_quota)
    query = query._replace(may_evict=True)
    said: list[tuple[int, ClusterId, WhyWaiting]] = []
    others_could = False
    for mechanism, cluster in zip(region.mechanisms, region.clusters, strict=True):
        if isinstance(mechanism, ExplainsWaiting):
            why = mechanism.why_waiting(query, cluster)
            if why is not None:
                said.append((-_PERMANENCE.index(why.reason), cluster.cluster, why))
        else:
            others_could = others_could or cluster.when_empty(query.kind, query.tasks) >= query.tasks
    if query.across_clusters and not others_could:
        others_could = bool(region.most_when_empty(query.kind, query.tasks)[region.packing].sum() >= query.tasks)
    if not said:
        return refusal
    _, name, why = min(said, key=lambda one: one[:2])
    if others_could:
        return replace(refusal, sentence=f"{refusal.sentence}; cluster {name}: it {why.sentence}")
    diagnosis = replace(
        refusal.diagnosis, reason=why.reason, cluster=name, cells_asked=why.asked, cells_owned=why.owned, numbers=()
    )
    return replace(refusal, diagnosis=diagnosis, sentence=f"job {jobs[0].name}: in cluster {name} it {why.sentence}")
