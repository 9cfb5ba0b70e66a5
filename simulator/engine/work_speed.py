"""How fast an attempt works: by the tasks that it has, and by how far they are spread."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_manager.skew.slowdown import SpreadSlowdown
from cluster_manager.skew.spread import most_gpus_of_machines
from domain.fleet import Fleet
from domain.placement import TaskPlacement
from domain.work_rate import work_rate
from domain.workload import WorkloadSpecification
from simulator.engine.settings import PlacementSettings


class WorkSpeed:
    """Seconds of work per second. What a snapshot has running goes at the rate of its tasks until it is changed."""

    def __init__(self, fleet: Fleet, settings: PlacementSettings) -> None:
        steps = settings.steps()
        self._slowdown = (
            SpreadSlowdown(
                steps, most_gpus_of_machines(cluster for region in fleet.regions for cluster in region.clusters)
            )
            if steps
            else None
        )

    def at_start(self, specification: WorkloadSpecification, placements: Sequence[TaskPlacement]) -> float:
        """Of an attempt that begins with its base tasks in these places."""
        return 1.0 if self._slowdown is None else 1.0 / self._slowdown.of(specification.jobs, placements)

    def of(self, specification: WorkloadSpecification, placements: Sequence[TaskPlacement]) -> float:
        """Of an attempt that has these tasks."""
        return work_rate(specification.jobs, placements) * self.at_start(specification, placements)
