"""What ends with a cluster that is lost, and how: nobody is left to report it, so it is said in the cluster's name.

An attempt with anything in a lost cluster has to leave for it (`machine_lost`), and its part there counts as lost from then
on. It has ended when the clusters have reported its end in which its other parts are.
"""

from __future__ import annotations

from collections.abc import Collection

from cluster_manager.attempt_run.events import MachineLost
from domain.identifiers import ClusterId, RegionId, WorkloadId
from domain.life_cycle import State
from services.database import attempt_store, placement_change_store
from services.database.connection import AnyConnection
from services.execution.executor import AttemptPhase, AttemptStatus
from services.regional_scheduler.eviction_writer import LOST, change_to_lost
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.loading import live_attempt_of
from services.regional_scheduler.recording import begin_evictions, record_reports
from services.tuned_work import TunedWorks


def lost_status(attempt: LiveAttempt, cluster: ClusterId, why: str, now: float) -> AttemptStatus:
    """What a lost cluster would report of the attempt: its last checkpoint is what is left of it."""
    run, known = attempt.run, attempt.reports.get(cluster)
    return AttemptStatus(
        attempt.key,
        AttemptPhase.LOST,
        now,
        progress=run.progress,
        checkpoint_progress=run.checkpoint_progress,
        reason=f"cluster {cluster} is lost: {why}",
        started_s=0.0 if known is None else known.started_s,
    )


async def end_in_database(
    connection: AnyConnection, region: RegionId, clusters: Collection[ClusterId], why: str, now: float
) -> list[WorkloadId]:
    """Ends what the region has in these clusters, for a region that has no session; returns the workloads, sorted.

    The caller has fenced the region: a session that begins later begins with what this transaction leaves behind. An
    attempt that has something in other clusters too is asked to leave, and ends with what that session hears of them.
    """
    works = TunedWorks(())
    changes = await placement_change_store.load_revisions(connection, region)
    there: list[LiveAttempt] = []
    for stored in await attempt_store.load_live(connection, region):
        attempt = live_attempt_of(stored, works)
        change = changes.get(attempt.key)
        if change is not None:
            attempt.revision, attempt.change, attempt.changed = change.revision, change.change, change.changed
        if not attempt.clusters_among(clusters):
            continue
        there.append(attempt)
    await change_to_lost(connection, [attempt for attempt in there if attempt.state is State.PREEMPTING])
    news = [(attempt, LOST) for attempt in there if attempt.state is not State.PREEMPTING]
    await begin_evictions(connection, region, news, now)
    for attempt in there:
        attempt.take(MachineLost(now))
        for cluster in attempt.clusters_among(clusters):
            attempt.reports[cluster] = lost_status(attempt, cluster, why, now)
    await record_reports(connection, region, there, (), now)
    return sorted(attempt.key.workload for attempt in there)
