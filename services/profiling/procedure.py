"""The procedure of optimistic profiling (Synergy §3.1): measures where it must, works out the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cluster_manager.tuning.optimistic_profiling import CacheModel, complete_profile, memory_axis, next_cpus
from domain.sensitivity import SensitivityProfile
from services.profiling.measured_run import Measurement, NotMeasured


@dataclass(frozen=True, slots=True)
class DataSet:
    """What the job reads, and how fast it comes."""

    dataset_gib: float
    gib_per_iteration: float
    storage_gib_per_s: float


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is for each GPU of the job."""

    cpus_per_gpu: int
    memory_gib_per_gpu: float


def profiled(
    machine: Machine,
    gpus: int,
    data: DataSet | None,
    measure: Callable[[int], Measurement],
    tell: Callable[[int, Measurement], None],
) -> SensitivityProfile:
    """The profile of a job whose tasks have so many GPUs. `measure` is asked for CPUs per GPU; `tell` hears each result.

    Without a data set memory beyond what the processes need makes no difference. Raises NotMeasured.
    """
    found: dict[int, Measurement] = {}
    while True:
        speeds = {cpus: each.iterations_per_s for cpus, each in found.items()}
        cpus = next_cpus(speeds, machine.cpus_per_gpu)
        if cpus is None:
            break
        found[cpus] = measure(cpus)
        tell(cpus, found[cpus])
    process_gib = _rounded_up(max(each.process_gib for each in found.values()))
    most = machine.memory_gib_per_gpu
    if process_gib / gpus > most:
        raise NotMeasured(
            f"the job needs {process_gib:g} GiB and there are {most * gpus:g} for it; give more with --memory-gib-per-gpu"
        )
    if data is None:
        # It reads nothing: any data set that is cached at once stands for none.
        cache = CacheModel(1.0, 0.0, 1.0, process_gib, gpus)
        return complete_profile(speeds, cache, sorted({process_gib / gpus, most}))
    cache = CacheModel(data.dataset_gib, data.gib_per_iteration, data.storage_gib_per_s, process_gib, gpus)
    return complete_profile(speeds, cache, memory_axis(cache, most))


def _rounded_up(gib: float) -> float:
    """To sixteenths: how much a process happens to have differs from run to run."""
    return max(1, math.ceil(gib * 16)) / 16
