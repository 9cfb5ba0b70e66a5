"""Whether a job fits on one machine: only such a job can wait until it is consolidated there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from domain.fleet import DEFAULT_MECHANISM, Machine, Region
from domain.identifiers import ANY_GPU_MODEL
from domain.resources import (
    TaskResources,
    capacity_mebibytes,
    capacity_millicpus,
    request_mebibytes,
    request_millicpus,
)
from domain.workload import JobSpecification


class OneMachine:
    """The kinds of machines that there are; what was asked of them is remembered."""

    def __init__(self, machines: Iterable[Machine]) -> None:
        self._kinds = sorted({(one.gpu_model, one.gpus, one.cpus, one.memory_gib) for one in machines if one.gpus})
        self._holds: dict[tuple[TaskResources, int], bool] = {}

    def holds(self, job: JobSpecification) -> bool:
        """Whether one of the machines would have room for all base tasks of the job, were it idle."""
        asked = job.resources, job.tasks
        known = self._holds.get(asked)
        if known is None:
            known = self._holds[asked] = any(_holds(kind, *asked) for kind in self._kinds)
        return known


def one_machine_of(regions: Sequence[Region]) -> OneMachine | None:
    """The machines of the regions; None where a cluster has cells: there a virtual cluster may own no whole machine, and
    a job that must be on one would wait for good."""
    if any(cluster.mechanism != DEFAULT_MECHANISM for region in regions for cluster in region.clusters):
        return None
    return OneMachine(machine for region in regions for machine in region.machines())


def _holds(kind: tuple[str, int, float, float], resources: TaskResources, tasks: int) -> bool:
    gpu_model, gpus, cpus, memory_gib = kind
    if resources.gpu_model not in (ANY_GPU_MODEL, gpu_model) or resources.gpus * tasks > gpus:
        return False
    if resources.cpus is not None and request_millicpus(resources.cpus) * tasks > capacity_millicpus(cpus):
        return False
    return resources.memory_gib is None or request_mebibytes(resources.memory_gib) * tasks <= capacity_mebibytes(
        memory_gib
    )
