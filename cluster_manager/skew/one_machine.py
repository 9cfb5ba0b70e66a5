"""Whether a job fits on one machine: only such a job can wait until it is consolidated there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cluster_manager.capacity.machine_shapes import MachineShape
from domain.fleet import DEFAULT_MECHANISM, Machine, Region
from domain.resources import TaskResources
from domain.workload import JobSpecification


class OneMachine:
    """The shapes of machines that there are; what was asked of them is remembered."""

    def __init__(self, machines: Iterable[Machine]) -> None:
        self._shapes = tuple(dict.fromkeys(MachineShape.of(machine) for machine in machines if machine.gpus))
        self._holds: dict[tuple[TaskResources, int], bool] = {}

    def holds(self, job: JobSpecification) -> bool:
        """Whether one of the machines would have room for all base tasks of the job, were it idle."""
        asked = job.resources, job.tasks
        known = self._holds.get(asked)
        if known is None:
            known = self._holds[asked] = any(
                shape.tasks_when_empty(job.resources, job.tasks) >= job.tasks for shape in self._shapes
            )
        return known


def one_machine_of(regions: Sequence[Region]) -> OneMachine | None:
    """The machines of the regions; None where a cluster has cells: there a virtual cluster may own no whole machine, and
    a job that must be on one would wait for good."""
    if any(cluster.mechanism != DEFAULT_MECHANISM for region in regions for cluster in region.clusters):
        return None
    return OneMachine(machine for region in regions for machine in region.machines())
