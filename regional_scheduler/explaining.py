"""Sentences for refusals: what was asked, and how much of it there is."""

from __future__ import annotations

from collections.abc import Sequence

from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason, known_to_fail
from domain.identifiers import ANY_GPU_MODEL, ClusterId, RegionId
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import JobSpecification
from regional_scheduler.refusal import Refusal


def no_room_alone(
    region: RegionId,
    clusters: Sequence[ClusterId],
    job: JobSpecification,
    standing: Standing,
    room: tuple[int, ...],
    empty: Sequence[int],
    now: float,
) -> Refusal:
    """The job finds no place at `now` even without the rest of its workload.

    `room` says for how many of its tasks each cluster has capacity, with evictions, and `empty` for how many when empty.
    """
    tasks = f"{job.tasks} task{'s' if job.tasks > 1 else ''} of {_asked(job.resources)}"
    if max(empty, default=0) == 0:
        sentence = f"job {job.name}: no machine of region {region} could hold one task of {_asked(job.resources)}"
        return Refusal(_too_few(Reason.NO_MACHINE_FITS, region, None, job, 0, now), sentence, room)
    if max(empty) < job.tasks:
        cluster = clusters[empty.index(max(empty))]
        sentence = (
            f"job {job.name} asks for {tasks}: the largest cluster of region {region}, {cluster}, "
            f"could hold {max(empty)} when empty"
        )
        return Refusal(_too_few(Reason.CLUSTERS_TOO_SMALL, region, cluster, job, max(empty), now), sentence, room)
    # A cluster that is too small when empty says nothing about what is in use.
    most = max(there for there, whole in zip(room, empty, strict=True) if whole >= job.tasks)
    cluster = clusters[room.index(most)]
    sentence = (
        f"job {job.name} asks for {tasks}: no cluster of region {region} has room for more than {most} "
        f"({cluster}), even with all evicted that is worse than priority {standing.priority}, level {standing.level}"
    )
    return Refusal(_too_few(Reason.NO_ROOM, region, cluster, job, most, now), sentence, room)


def no_room_for_smaller(job: JobSpecification, smaller: JobSpecification, found: Refusal) -> Refusal:
    """The job asks for at least what a smaller one was refused for; no other job's name is shown."""
    why = found.sentence.removeprefix(f"job {smaller.name}")
    sentence = f"job {job.name} asks for more than another job for which there is no room; that one{why}"
    return Refusal(known_to_fail(found.diagnosis, job.name), sentence)


def no_room_together(region: RegionId, job: JobSpecification, now: float) -> Refusal:
    """The job finds a place alone at `now`, but not beside the other jobs of its workload."""
    sentence = (
        f"job {job.name} asks for {job.tasks} tasks of {_asked(job.resources)}: region {region} has room for "
        "each job of the workload alone, but none for this one beside the others"
    )
    return Refusal(Diagnosis(Reason.NO_ROOM_TOGETHER, region, job=job.name, since_s=now), sentence)


def _too_few(
    reason: Reason, region: RegionId, cluster: ClusterId | None, job: JobSpecification, available: int, now: float
) -> Diagnosis:
    """There is room for fewer tasks than the job has."""
    numbers = (Numbers(Quantity.TASKS, job.tasks, available),)
    return Diagnosis(reason, region, cluster, job.name, numbers=numbers, since_s=now)


def _asked(resources: TaskResources) -> str:
    """What one task asks for, in words."""
    model = "" if resources.gpu_model == ANY_GPU_MODEL else f"{resources.gpu_model} "
    parts = [f"{resources.gpus} {model}GPUs"] if resources.gpus else []
    parts.append("its share of CPUs" if resources.cpus is None else f"{resources.cpus:g} CPUs")
    parts.append("its share of memory" if resources.memory_gib is None else f"{resources.memory_gib:g} GiB")
    return ", ".join(parts)
