"""Weaker GPUs in terms of those that a job asked for: more tasks with the same global batch (Lyra §2.1, §5.2, §7.1).

A GPU of speed 1/3 does a third of the work of one that was asked for, as three machines with T4 are worth one with V100.
Tasks keep their GPUs; each has a smaller share of the global batch, so that the model comes out the same.
"""

from __future__ import annotations

import math
from dataclasses import replace

from domain.identifiers import GpuModel
from domain.scaling import ScalingPoint
from domain.workload import JobSpecification

HETEROGENEOUS_EFFICIENCY = 0.7
"""Lyra §7.1: "heterogeneous training jobs only achieve at most 70% of the ideal results"."""
_SLACK = 1e-9


def equivalent_tasks(tasks: int, speed: float) -> int:
    """How many tasks on GPUs of this speed do what so many do on those that were asked for, rounded up.

    Raises ValueError for a speed that is not positive and finite.
    """
    if not (math.isfinite(speed) and speed > 0.0):
        raise ValueError(f"the speed of a GPU relative to another one is positive, not {speed}")
    return math.ceil(tasks / speed - _SLACK)


def fungible_job(job: JobSpecification, gpu_model: GpuModel, speed: float) -> JobSpecification:
    """The job as it runs on GPUs of another model: with as many more base and flexible tasks as that takes."""
    return replace(
        job,
        tasks=equivalent_tasks(job.tasks, speed),
        max_tasks=equivalent_tasks(job.max_tasks, speed) if job.max_tasks else 0,
        resources=job.resources._replace(gpu_model=gpu_model),
        scaling=_equivalent_curve(job.scaling, speed),
    )


def _equivalent_curve(points: tuple[ScalingPoint, ...], speed: float) -> tuple[ScalingPoint, ...]:
    """The speeds by numbers of tasks on GPUs of this speed: as many as do what so many do on those that were asked for."""
    by_tasks = {equivalent_tasks(point.tasks, speed): point.throughput for point in points}
    return tuple([ScalingPoint(tasks, throughput) for tasks, throughput in by_tasks.items()])


def heterogeneous_rate(
    base_tasks: int, tasks: int, weaker_tasks: int, speed: float, efficiency: float = HETEROGENEOUS_EFFICIENCY
) -> float:
    """Times the speed of `base_tasks`, of a job with `tasks` on the GPUs that it asked for and `weaker_tasks` on those of `speed`.

    On both at once it only reaches the share `efficiency` of what they could do together.
    """
    together = (tasks + weaker_tasks * speed) / base_tasks
    return together * efficiency if tasks and weaker_tasks else together
