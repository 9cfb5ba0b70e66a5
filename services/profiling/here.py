"""Profiles a job on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable

import psutil

from domain.sensitivity import SensitivityProfile
from domain.workload import JobSpecification
from services.profiling.measured_run import Effort, Measurement, NotMeasured, measured
from services.profiling.procedure import DataSet, Machine, profiled


def profile_here(
    job: JobSpecification,
    cpus_per_gpu: int | None,
    memory_gib_per_gpu: float | None,
    data: DataSet | None,
    effort: Effort,
    tell: Callable[[int, Measurement], None],
) -> SensitivityProfile:
    """The profile of the job, measured on the CPUs that this process may use; None: with all of them, and all memory.

    Raises NotMeasured.
    """
    present = sorted(os.sched_getaffinity(0))
    gpus = max(1, job.resources.gpus)
    most_cpus = len(present) // gpus if cpus_per_gpu is None else cpus_per_gpu
    if not 1 <= most_cpus * gpus <= len(present):
        raise NotMeasured(
            f"there are {len(present)} CPUs here for {gpus} GPUs with {max(most_cpus, 1)} CPUs each;"
            " give --cpus-per-gpu, or measure on a larger machine"
        )
    machine_gib = psutil.virtual_memory().total / 2**30
    most_gib = machine_gib / gpus if memory_gib_per_gpu is None else memory_gib_per_gpu

    def measure(cpus: int) -> Measurement:
        return measured(job, present[: cpus * gpus], most_gib * gpus, effort)

    return profiled(Machine(most_cpus, most_gib), gpus, data, measure, tell)
