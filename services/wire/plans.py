"""Attempts, scores and dry runs of the planner on the wire."""

from __future__ import annotations

from domain.placement import AttemptKey, Score
from domain.plan import Plan
from services.wire.workloads import placement_to_proto
from topmast.v1 import cluster_manager_pb2, regional_scheduler_pb2


def attempt_reference_to_proto(key: AttemptKey) -> cluster_manager_pb2.AttemptReference:
    return cluster_manager_pb2.AttemptReference(workload=key.workload, attempt=key.attempt)


def attempt_to_text(key: AttemptKey) -> str:
    """`workload#attempt`, as messages for people name it."""
    return f"{key.workload}#{key.attempt}"


def score_to_proto(score: Score) -> regional_scheduler_pb2.Score:
    return regional_scheduler_pb2.Score(
        reclaim_class=score.reclaim_class,
        work_destroyed_by_priority=score.work_destroyed_by_priority,
        preempted_by_priority=score.preempted_by_priority,
        preempted_running_s=score.preempted_running_s,
        spread=score.spread,
        fragmentation=score.fragmentation,
        hint=score.hint,
        load=score.load,
    )


def plan_to_proto(plan: Plan, reason: str = "") -> regional_scheduler_pb2.PlanWorkloadResponse:
    """The answer to a dry run that found this plan; `reason` says what it would take, in one sentence."""
    return regional_scheduler_pb2.PlanWorkloadResponse(
        placeable=True,
        reason=reason,
        score=score_to_proto(plan.score),
        placements=[placement_to_proto(placement) for placement in plan.placements],
        evictions=[attempt_to_text(key) for key in plan.evictions],
    )
