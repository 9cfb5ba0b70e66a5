"""What is asked of workloads that run: other sizes, other amounts of CPU and memory, another place."""

from __future__ import annotations

from dataclasses import dataclass

from topmast.messages import message_of
from topmast.v1 import global_scheduler_pb2, regional_scheduler_pb2
from topmast.workloads import TaskPlacement, placement_from_proto


@dataclass(frozen=True, slots=True)
class Change:
    """What was decided and is stored; that it is carried out, events say (resized, tuned, started).

    `changes` is False when everything is as wanted already. `placements` are what the workload will hold, `evicting`
    the attempts that are asked to leave for it, as workload#attempt.
    """

    changes: bool
    placements: tuple[TaskPlacement, ...]
    evicting: tuple[str, ...]


def change_from_proto(message: regional_scheduler_pb2.ActionResponse) -> Change:
    return Change(
        message.changes,
        tuple(placement_from_proto(placement) for placement in message.placements),
        tuple(message.evicting),
    )


def resize_request(workload: str, job: str, tasks: int) -> regional_scheduler_pb2.ResizeWorkloadRequest:
    return message_of(regional_scheduler_pb2.ResizeWorkloadRequest, workload=workload, job=job, tasks=tasks)


def retune_request(
    workload: str, job: str, cpus: float | None, memory_gib: float | None
) -> regional_scheduler_pb2.RetuneWorkloadRequest:
    return message_of(
        regional_scheduler_pb2.RetuneWorkloadRequest, workload=workload, job=job, cpus=cpus, memory_gib=memory_gib
    )


def migrate_request(workload: str, to: str) -> global_scheduler_pb2.MoveWorkloadRequest:
    return message_of(global_scheduler_pb2.MoveWorkloadRequest, workload=workload, to=to)
