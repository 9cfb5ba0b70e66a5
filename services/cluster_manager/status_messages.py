"""Orders, statuses and logs of a cluster manager, to and from their messages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from domain.identifiers import IDENTIFIER_PATTERN, AttemptNumber, JobName, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from formats.problems import FieldProblem, in_quotes
from services.execution.executor import (
    AttemptOrder,
    AttemptPhase,
    AttemptStatus,
    Change,
    JobRendezvous,
    LogRequest,
    MachineStatus,
    TaskLogChunk,
    TaskReference,
)
from services.wire.malformed_message import MalformedMessage
from services.wire.workloads import placement_from_proto, specification_from_proto
from topmast.v1 import cluster_manager_pb2, training_session_pb2, workload_pb2

_PHASES = {phase: cluster_manager_pb2.AttemptPhase.Value(f"ATTEMPT_PHASE_{phase.name}") for phase in AttemptPhase}
_is_name = re.compile(IDENTIFIER_PATTERN).fullmatch


def status_to_proto(status: AttemptStatus) -> cluster_manager_pb2.AttemptStatus:
    return cluster_manager_pb2.AttemptStatus(
        workload=status.key.workload,
        attempt=status.key.attempt,
        phase=_PHASES[status.phase],
        since_s=status.since_s,
        progress=status.progress,
        checkpoint_progress=status.checkpoint_progress,
        throughput=status.throughput,
        reason=status.reason,
        emulated=status.emulated,
        started_s=status.started_s,
        revision=status.revision,
        changed_s=status.changed_s,
        changed_progress=status.changed_progress,
        measured=[cluster_manager_pb2.JobMeasurement(**measured._asdict()) for measured in status.measured],
        lost_tasks=[cluster_manager_pb2.LostTask(job=lost.job, task=lost.task) for lost in status.lost_tasks],
        rendezvous=[cluster_manager_pb2.Rendezvous(**one._asdict()) for one in status.rendezvous],
        exit_code=status.exit_code,
    )


def machine_to_proto(status: MachineStatus) -> cluster_manager_pb2.MachineStatus:
    return cluster_manager_pb2.MachineStatus(machine=status.machine, up=status.up, reason=status.reason)


def changes_to_proto(changes: Iterable[Change], *, complete: bool) -> cluster_manager_pb2.WatchStatusResponse:
    """One message of the stream; `complete` when it names every attempt that is known."""
    message = cluster_manager_pb2.WatchStatusResponse(complete=complete)
    for change in changes:
        if isinstance(change, AttemptStatus):
            message.attempts.append(status_to_proto(change))
        else:
            message.machines.append(machine_to_proto(change))
    return message


def log_chunk_to_proto(chunk: TaskLogChunk) -> cluster_manager_pb2.ReadLogsResponse:
    return cluster_manager_pb2.ReadLogsResponse(
        attempt=chunk.attempt, job=chunk.job, task=chunk.task, chunk=chunk.chunk
    )


def orders_from_proto(plans: Sequence[cluster_manager_pb2.AttemptPlan]) -> list[AttemptOrder]:
    """The orders in these plans. Raises MalformedMessage naming every bad field of every plan."""
    orders: list[AttemptOrder] = []
    problems: list[FieldProblem] = []
    for index, plan in enumerate(plans):
        try:
            orders.append(_order_from_proto(plan))
        except MalformedMessage as malformed:
            problems += malformed.under(f"plans[{index}]").problems
    if problems:
        raise MalformedMessage(problems)
    return orders


def _order_from_proto(plan: cluster_manager_pb2.AttemptPlan) -> AttemptOrder:
    problems = [*_key_problems(plan.workload, plan.attempt)]
    problems += [
        FieldProblem(field, f"is {number}; it must be a finite number that is not negative")
        for field, number in (
            ("progress", plan.progress),
            ("started_s", plan.started_s),
            ("revision", plan.revision),
            ("changed_s", plan.changed_s),
            ("changed_progress", plan.changed_progress),
            ("work_rate", plan.work_rate),
        )
        if not (math.isfinite(number) and number >= 0)
    ]
    specification = None
    try:
        specification = specification_from_proto(plan.specification)
    except MalformedMessage as malformed:
        problems += malformed.under("specification").problems
    else:
        if not _is_name(specification.tenant):
            named = in_quotes(specification.tenant)
            problems.append(
                FieldProblem("specification.tenant", f"{named} is no name of a tenant: say whose work this is")
            )
        if not specification.jobs:
            problems.append(FieldProblem("specification.jobs", "is empty: there is nothing to run"))
        problems += [
            FieldProblem(f"specification.jobs[{index}].name", f"{in_quotes(job.name)} is no name of a job")
            for index, job in enumerate(specification.jobs)
            if not _is_name(job.name)
        ]
    placements: tuple[TaskPlacement, ...] = ()
    try:
        placements = placements_from_proto(plan.placements)
    except MalformedMessage as malformed:
        problems += malformed.problems
    if problems or specification is None:
        raise MalformedMessage(problems)
    return AttemptOrder(
        key=AttemptKey(WorkloadId(plan.workload), AttemptNumber(plan.attempt)),
        specification=specification,
        placements=placements,
        hold=plan.hold,
        progress=plan.progress,
        started_s=plan.started_s,
        revision=plan.revision,
        changed_s=plan.changed_s,
        changed_progress=plan.changed_progress,
        work_rate=plan.work_rate or 1.0,
        rendezvous=tuple([JobRendezvous(JobName(one.job), one.address, one.port) for one in plan.rendezvous]),
    )


def keys_from_proto(references: Sequence[cluster_manager_pb2.AttemptReference]) -> list[AttemptKey]:
    """The attempts that are meant. Raises MalformedMessage naming every bad field."""
    problems: list[FieldProblem] = []
    for index, reference in enumerate(references):
        found = _key_problems(reference.workload, reference.attempt)
        problems += [FieldProblem(f"attempts[{index}].{problem.field}", problem.description) for problem in found]
    if problems:
        raise MalformedMessage(problems)
    return [AttemptKey(WorkloadId(reference.workload), AttemptNumber(reference.attempt)) for reference in references]


def key_from_proto(message: cluster_manager_pb2.ResizeAttemptRequest) -> AttemptKey:
    """The attempt that is meant. Raises MalformedMessage."""
    _raise_if_any(_key_problems(message.workload, message.attempt))
    return AttemptKey(WorkloadId(message.workload), AttemptNumber(message.attempt))


def placements_from_proto(messages: Sequence[workload_pb2.TaskPlacement]) -> tuple[TaskPlacement, ...]:
    """The placements in the field `placements` of a message. Raises MalformedMessage naming every bad field."""
    placements: list[TaskPlacement] = []
    problems: list[FieldProblem] = []
    for index, message in enumerate(messages):
        try:
            placements.append(placement_from_proto(message))
        except MalformedMessage as malformed:
            problems += malformed.under(f"placements[{index}]").problems
        except OverflowError:
            problems.append(FieldProblem(f"placements[{index}]", "asks for more than can be counted"))
    _raise_if_any(problems)
    return tuple(placements)


def task_from_proto(message: training_session_pb2.TaskReference) -> TaskReference:
    """The task that calls. Raises MalformedMessage."""
    try:
        _raise_if_any(_key_problems(message.workload, message.attempt))
    except MalformedMessage as malformed:
        raise malformed.under("task") from None
    key = AttemptKey(WorkloadId(message.workload), AttemptNumber(message.attempt))
    return TaskReference(key, JobName(message.job), message.task, message.token)


def log_request_from_proto(message: cluster_manager_pb2.ReadLogsRequest) -> LogRequest:
    """Whose output is wanted. Raises MalformedMessage."""
    problems = _key_problems(message.workload, max(1, message.attempt))
    if message.attempt < 0:
        problems.append(FieldProblem("attempt", f"is {message.attempt}; attempts are numbered from 1"))
    if message.tail_lines < 0:
        problems.append(FieldProblem("tail_lines", f"is {message.tail_lines}; it cannot be negative"))
    _raise_if_any(problems)
    return LogRequest(
        workload=WorkloadId(message.workload),
        attempt=AttemptNumber(message.attempt),
        job=JobName(message.job) if message.job else None,
        task=message.task if message.HasField("task") else None,
        follow=message.follow,
        tail_lines=message.tail_lines,
    )


def name_problems(workload: str) -> list[FieldProblem]:
    if _is_name(workload):
        return []
    return [FieldProblem("workload", f"{in_quotes(workload)} is no name of a workload")]


def _key_problems(workload: str, attempt: int) -> list[FieldProblem]:
    problems = name_problems(workload)
    if attempt < 1:
        problems.append(FieldProblem("attempt", f"is {attempt}; attempts are numbered from 1"))
    return problems


def _raise_if_any(problems: Sequence[FieldProblem]) -> None:
    if problems:
        raise MalformedMessage(problems)
