"""Workloads as clients get them."""

from __future__ import annotations

from collections.abc import Iterable

from domain.diagnosis import Diagnosis
from domain.identifiers import TenantId
from domain.life_cycle import QUEUED
from domain.notification import shown_url
from domain.rank import QueuePosition, policy_level
from domain.workload_array import element_of
from services.database.notification_store import NotificationState
from services.database.workload_reader import AttemptRecord, Preemptor, StoredWorkload
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
        held_by=stored.held_by or "",
        requeue_requested=stored.requeue_by is not None,
        revision=stored.revision,
        waits_for=[
            workload_pb2.AwaitedWorkload(
                condition=one.dependency.condition,
                workload=one.dependency.workload,
                name=one.name,
                state=state_to_proto(one.state),
            )
            for one in stored.waits_for
        ],
    )
    message.specification.ParseFromString(stored.specification)
    element = element_of(stored.workload) if stored.array is not None else None
    if element is not None:
        message.array, message.array_index = element
    if message.specification.HasField("notify"):
        message.specification.notify.url = shown_url(message.specification.notify.url)
    last = None
    for last in attempts:
        message.attempts.append(_attempt_message(last, stored.tenant))
    if stored.state in QUEUED:
        message.queue_position.CopyFrom(position_message(stored.position, rank, why_pending, stored.diagnosis))
        if stored.position is None:
            _say_next_try(message.queue_position, stored.not_before_s, last)
    return message


def _say_next_try(position: workload_pb2.QueuePosition, not_before_s: float, last: AttemptRecord | None) -> None:
    """No scan pass ranks it until then: it stands where its last attempt stood."""
    position.next_try_s = not_before_s
    if last is not None:
        position.priority = last.standing.priority
        position.level = policy_level(last.standing.level)
        position.within_quota = last.within_quota


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


def _attempt_message(attempt: AttemptRecord, tenant: TenantId) -> workload_pb2.Attempt:
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
        exit_code=attempt.exit_code,
        preempted_by=None if attempt.preempted_by is None else _preemptor_message(attempt.preempted_by, tenant),
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


def notification_message(state: NotificationState) -> workload_pb2.NotificationStatus:
    """How telling the receiver of a workload's notifications goes."""
    failing_since_s = state.failing_since_real_s
    return workload_pb2.NotificationStatus(
        host=state.host,
        delivered=state.delivered,
        waiting=state.waiting,
        given_up=state.given_up,
        failing_since_s=failing_since_s or 0.0,
        next_try_s=(state.due_real_s or 0.0) if failing_since_s is not None else 0.0,
        error=state.error,
    )


def _preemptor_message(preemptor: Preemptor, tenant: TenantId) -> workload_pb2.Preemptor:
    """Only one of the same tenant has a name."""
    own = preemptor.tenant == tenant
    return workload_pb2.Preemptor(
        workload=preemptor.workload if own else "",
        name=preemptor.name if own else "",
        priority=preemptor.standing.priority,
        level=policy_level(preemptor.standing.level),
    )
