"""What a cluster manager is sent for its part of an attempt."""

from __future__ import annotations

from domain.identifiers import ClusterId
from services.regional_scheduler.live_attempts import LiveAttempt, Order
from services.wire.workloads import placement_to_proto, specification_to_proto
from topmast.v1 import cluster_manager_pb2


def attempt_plan(attempt: LiveAttempt, cluster: ClusterId) -> cluster_manager_pb2.AttemptPlan:
    """The cluster's placements of the attempt, and where it starts from (or since when it has been running)."""
    # What was decided is asked for when it runs: until then it is what it was before.
    placements = attempt.placements if attempt.change is None else attempt.change.before
    changed_s, changed_progress = attempt.changed.get(cluster, (0.0, 0.0))
    elsewhere = [report for other, report in sorted(attempt.reports.items()) if other != cluster]
    return cluster_manager_pb2.AttemptPlan(
        workload=attempt.key.workload,
        attempt=attempt.key.attempt,
        specification=specification_to_proto(attempt.specification),
        placements=[placement_to_proto(p) for p in placements if p.cluster == cluster],
        hold=attempt.ordered.get(cluster) is Order.HOLD,
        progress=attempt.run.facts.progress_at_start,
        started_s=attempt.started_s or 0.0,
        revision=attempt.revision if attempt.change is None else attempt.revision - 1,
        changed_s=changed_s,
        changed_progress=changed_progress,
        work_rate=attempt.tuned.rate(attempt.specification, placements),
        rendezvous=[
            cluster_manager_pb2.Rendezvous(**one._asdict()) for report in elsewhere for one in report.rendezvous
        ],
    )


def resize_request(attempt: LiveAttempt, cluster: ClusterId) -> cluster_manager_pb2.ResizeAttemptRequest:
    """The placements that the attempt is to have in the cluster from now on."""
    return cluster_manager_pb2.ResizeAttemptRequest(
        workload=attempt.key.workload,
        attempt=attempt.key.attempt,
        placements=[placement_to_proto(p) for p in attempt.placements if p.cluster == cluster],
        revision=attempt.revision,
        work_rate=attempt.tuned.rate(attempt.specification, attempt.placements),
    )
