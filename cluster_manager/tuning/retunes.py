"""From what a tuning mechanism says of jobs to actions of plans on the attempts that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cluster_manager.tuning.demand import DemandBook, GpuAmounts, most_per_gpu
from cluster_manager.tuning.mechanism import MachineRoom, Part, PlacedJob, TuningMechanism
from domain.identifiers import MachineId
from domain.placement import AttemptKey, TaskPlacement
from domain.plan import Retune, TaskAmounts, TaskName
from domain.sensitivity import SensitivityProfile


class TunableJob(NamedTuple):
    """A job of a running attempt whose CPUs and memory may change."""

    attempt: AttemptKey
    placements: tuple[TaskPlacement, ...]
    """Of this job, all with GPUs."""
    profile: SensitivityProfile | None
    """None: it is treated proportionally."""


class TunableMachine(NamedTuple):
    """A machine with tasks of such jobs."""

    capacity: MachineRoom
    free: MachineRoom


def share_of(capacity: MachineRoom) -> GpuAmounts:
    """What each GPU of a machine comes with, rounded down. Raises ValueError for one without GPUs."""
    if capacity.gpus < 1:
        raise ValueError("a machine without GPUs has no proportional share")
    return GpuAmounts(capacity.millicpus // capacity.gpus, capacity.mebibytes // capacity.gpus)


def share_on(capacities: Sequence[MachineRoom]) -> GpuAmounts:
    """The share of a job on these machines: the least of them, for a job is as fast as its slowest task."""
    shares = [share_of(capacity) for capacity in capacities]
    return GpuAmounts(min(share.millicpus for share in shares), min(share.mebibytes for share in shares))


def retunes(
    mechanism: TuningMechanism,
    jobs: Sequence[TunableJob],
    machines: Mapping[MachineId, TunableMachine],
    book: DemandBook,
) -> tuple[Retune, ...]:
    """What is to be retuned so that all jobs hold what the mechanism says, on the machines and GPUs that they have.

    Each is possible when those before it are done: first everybody releases, by attempt, then everybody takes. Jobs that
    do not change are not mentioned. Raises KeyError for a task on a machine that is not given.
    """
    names = sorted(machines)
    position = {name: index for index, name in enumerate(names)}
    placed = [_placed(job, machines, position, book) for job in jobs]
    wanted = mechanism.retuned(placed, _rooms(jobs, [machines[name] for name in names], position))
    before: dict[AttemptKey, dict[TaskName, TaskAmounts]] = {}
    after: dict[AttemptKey, dict[TaskName, TaskAmounts]] = {}
    for job, amounts in zip(jobs, wanted, strict=True):
        for task in job.placements:
            gpus = len(task.gpu_indices)
            name = TaskName(task.job, task.task)
            before.setdefault(job.attempt, {})[name] = TaskAmounts(name, task.millicpus, task.mebibytes)
            after.setdefault(job.attempt, {})[name] = TaskAmounts(
                name, gpus * amounts.millicpus, gpus * amounts.mebibytes
            )
    releases, takes = [], []
    for attempt in sorted(before):
        least = {name: _least(held, after[attempt][name]) for name, held in before[attempt].items()}
        releases += _change(attempt, before[attempt], least)
        takes += _change(attempt, least, after[attempt])
    return (*releases, *takes)


def _placed(
    job: TunableJob, machines: Mapping[MachineId, TunableMachine], position: Mapping[MachineId, int], book: DemandBook
) -> PlacedJob:
    """The job as the mechanism sees it."""
    gpus: dict[int, int] = {}
    for task in job.placements:
        gpus[position[task.machine]] = gpus.get(position[task.machine], 0) + len(task.gpu_indices)
    capacities = [machines[task.machine].capacity for task in job.placements]
    share = share_on(capacities)
    # The most that it may hold is all of its smallest machine for the GPUs that it has there, or the least of that.
    limits = [
        most_per_gpu(count, count, capacity.millicpus, capacity.mebibytes)
        for capacity, count in zip(capacities, [gpus[position[task.machine]] for task in job.placements], strict=True)
    ]
    most = GpuAmounts(min(limit.millicpus for limit in limits), min(limit.mebibytes for limit in limits))
    held = GpuAmounts(
        min(task.millicpus // len(task.gpu_indices) for task in job.placements),
        min(task.mebibytes // len(task.gpu_indices) for task in job.placements),
    )
    parts = tuple([Part(machine, count) for machine, count in sorted(gpus.items())])
    return PlacedJob(parts, book.of(job.profile, share, most if job.profile else None), held)


def _rooms(
    jobs: Sequence[TunableJob], machines: Sequence[TunableMachine], position: Mapping[MachineId, int]
) -> list[MachineRoom]:
    """What is free, and what the jobs hold."""
    rooms = [list(machine.free) for machine in machines]
    for job in jobs:
        for task in job.placements:
            room = rooms[position[task.machine]]
            room[0] += len(task.gpu_indices)
            room[1] += task.millicpus
            room[2] += task.mebibytes
    return [MachineRoom(*room) for room in rooms]


def _least(one: TaskAmounts, other: TaskAmounts) -> TaskAmounts:
    return TaskAmounts(one.name, min(one.millicpus, other.millicpus), min(one.mebibytes, other.mebibytes))


def _change(
    attempt: AttemptKey, before: Mapping[TaskName, TaskAmounts], after: Mapping[TaskName, TaskAmounts]
) -> list[Retune]:
    changed = tuple([amounts for name, amounts in sorted(after.items()) if amounts != before[name]])
    return [Retune(attempt, changed)] if changed else []
