"""Sentences for refusals: what was asked, and how much of it there is."""

from __future__ import annotations

from cluster_manager.capacity.inventory import Inventory
from cluster_manager.capacity.needs import room_when_empty
from cluster_manager.capacity.requests import request_of
from domain.identifiers import ANY_GPU_MODEL
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import JobSpecification
from regional_scheduler.refusal import Refusal, RefusalReason


def no_room_alone(inventory: Inventory, job: JobSpecification, room: tuple[int, ...], standing: Standing) -> Refusal:
    """The job finds no room even without the rest of its workload; `room` is per cluster, with evictions."""
    request = request_of(inventory.layout, job)
    empty = room_when_empty(inventory.layout, request)
    tasks = f"{job.tasks} task{'s' if job.tasks > 1 else ''} of {_asked(job.resources)}"
    if max(empty, default=0) == 0:
        sentence = (
            f"job {job.name}: no machine of region {inventory.region} could hold one task of {_asked(job.resources)}"
        )
        return Refusal(RefusalReason.NO_MACHINE_FITS, job.name, sentence, room)
    if max(empty) < job.tasks:
        cluster = inventory.layout.cluster_ids[empty.index(max(empty))]
        sentence = (
            f"job {job.name} asks for {tasks}: the largest cluster of region {inventory.region}, {cluster}, "
            f"could hold {max(empty)} when empty"
        )
        return Refusal(RefusalReason.CLUSTERS_TOO_SMALL, job.name, sentence, room)
    # A cluster that is too small when empty says nothing about what is in use.
    most = max(there for there, whole in zip(room, empty, strict=True) if whole >= job.tasks)
    cluster = inventory.layout.cluster_ids[room.index(most)]
    sentence = (
        f"job {job.name} asks for {tasks}: no cluster of region {inventory.region} has room for more than {most} "
        f"({cluster}), even with all evicted that is worse than priority {standing.priority}, level {standing.level}"
    )
    return Refusal(RefusalReason.NO_ROOM, job.name, sentence, room)


def no_room_together(inventory: Inventory, job: JobSpecification) -> Refusal:
    """The job finds room alone, but not beside the other jobs of its workload."""
    sentence = (
        f"job {job.name} asks for {job.tasks} tasks of {_asked(job.resources)}: region {inventory.region} has room for "
        "each job of the workload alone, but none for this one beside the others"
    )
    return Refusal(RefusalReason.NO_ROOM_TOGETHER, job.name, sentence)


def _asked(resources: TaskResources) -> str:
    """What one task asks for, in words."""
    model = "" if resources.gpu_model == ANY_GPU_MODEL else f"{resources.gpu_model} "
    parts = [f"{resources.gpus} {model}GPUs"] if resources.gpus else []
    parts.append("its share of CPUs" if resources.cpus is None else f"{resources.cpus:g} CPUs")
    parts.append("its share of memory" if resources.memory_gib is None else f"{resources.memory_gib:g} GiB")
    return ", ".join(parts)
