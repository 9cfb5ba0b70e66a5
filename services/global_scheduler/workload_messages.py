"""Workloads as clients get them."""

from __future__ import annotations

from collections.abc import Iterable

from domain.diagnosis import Diagnosis
from domain.life_cycle import QUEUED
from domain.rank import QueuePosition, policy_level
from services.database.workload_reader import AttemptRecord, StoredWorkload
from services.wire.diagnoses import diagnosis_to_proto
from services.wire.workloads import placement_to_proto, state_to_proto
from topmast.v1 import workload_pb2

NOT_RANKED = 0
"""The rank of what no scan pass has seen yet; the head of the queue has 1."""


def workload_message(
    stored: StoredWorkload, rank: int, why_pending: str, attempts: Iterable[AttemptRecord] = ()
) -> workload_pb2.Workload:
    """`rank` and `why_pending` count while the workload is queued."""
    message = workload_pb2.Workload(
        workload=stored.workload,
        state=state_to_proto(stored.state),
        submitted_s=stored.submitted_s,
        ended_s=stored.ended_s or 0.0,
        region=stored.region or "",
        progress=stored.progress,
        checkpoint_progress=stored.checkpoint_progress,
        throughput=stored.throughput,
        failures=stored.failures,
        reason=stored.reason,
        cancel_requested=stored.cancel_requested,
        attempts=[_attempt_message(attempt) for attempt in attempts],
    )
    message.specification.ParseFromString(stored.specification)
    if stored.state in QUEUED:
        message.queue_position.CopyFrom(position_message(stored.position, rank, why_pending, stored.diagnosis))
    return message


def position_message(
    position: QueuePosition | None, rank: int, why_pending: str, diagnosis: Diagnosis | None
) -> workload_pb2.QueuePosition:
    """`position` None: not ranked yet."""
    reported = None if diagnosis is None else diagnosis_to_proto(diagnosis)
    if position is None:
        return workload_pb2.QueuePosition(rank=NOT_RANKED, reason=why_pending, diagnosis=reported)
    return workload_pb2.QueuePosition(
        priority=position.standing.priority,
        level=policy_level(position.standing.level),
        credit=position.credit,
        within_quota=position.within_quota,
        rank=rank,
        reason=why_pending,
        diagnosis=reported,
    )


def _attempt_message(attempt: AttemptRecord) -> workload_pb2.Attempt:
    return workload_pb2.Attempt(
        attempt=attempt.key.attempt,
        region=attempt.region,
        dispatched_s=attempt.dispatched_s,
        started_s=attempt.started_s or 0.0,
        ended_s=attempt.ended_s or 0.0,
        within_quota=attempt.within_quota,
        priority=attempt.standing.priority,
        level=policy_level(attempt.standing.level),
        placements=[placement_to_proto(placement) for placement in attempt.placements],
        end=attempt.end or "",
        end_reason=attempt.end_reason,
        progress_at_start=attempt.progress_at_start,
        progress=attempt.progress,
        checkpoint_progress=attempt.checkpoint_progress,
        guaranteed=attempt.guaranteed,
        cells=[
            workload_pb2.JobCells(
                job=job,
                virtual_cluster=use.virtual_cluster,
                hierarchy=use.chain,
                pinned_cell=use.pinned_cell or "",
                levels=[task.owned_level for task in use.tasks],
                downgraded=use.downgraded,
            )
            for job, use in attempt.cells
        ],
    )
