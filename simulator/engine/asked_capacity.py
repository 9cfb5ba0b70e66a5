"""What workloads ask for beside what there is: in parts of the fleet, and beside what is free on machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cluster_manager.capacity.tables import RESOURCES, WORKS_AS
from cluster_manager.tuning.packing_demands import PackingDemands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.fleet import Machine
    from simulator.engine.regions import SimulatedRegions
    from simulator.engine.workloads import SimulatedWorkload


class AskedCapacity:
    """Compares; `machines` are those of the fleet."""

    def __init__(self, regions: SimulatedRegions, machines: Sequence[Machine]) -> None:
        self._regions = regions
        self._demands = PackingDemands(machines)

    def dominant_share(self, work: SimulatedWorkload) -> float:
        """The largest part that it asks for of the fleet's GPUs, CPUs or memory."""
        return self._demands.dominant_share(work.workload.specification)

    def size(self, work: SimulatedWorkload) -> float:
        """What it asks for in parts of the largest machine, all resources together."""
        return self._demands.size(work.workload.specification)

    def alignment(self, work: SimulatedWorkload) -> float | None:
        """The greatest inner product of what a task of its first job asks for and what is free on a machine that has it, both
        in parts of the largest machine (Tetris §3.1); None: no machine has it."""
        job = work.workload.specification.jobs[0]
        asked = self._demands.asked(job)
        best: float | None = None
        for region in work.eligible:
            for cluster in self._regions.members[region].inventory.clusters:
                state = cluster.arrays.state
                # The last one is for machines that take no work.
                suits = np.array([*(shape.suits(job.resources) for shape in cluster.shared.shapes.shapes), False])
                found = self._demands.alignment(asked, state[suits[state[:, WORKS_AS]], :RESOURCES])
                if found is not None:
                    best = found if best is None else max(best, found)
        return best
