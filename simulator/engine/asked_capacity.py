"""What workloads ask for beside what there is: in parts of the fleet, and beside what is free on machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cluster_manager.capacity.tables import NO_WORK, RESOURCES, WORKS_AS
from domain.resources import request_mebibytes, request_millicpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from domain.fleet import Machine
    from domain.workload import JobSpecification
    from simulator.engine.regions import SimulatedRegions
    from simulator.engine.workloads import SimulatedWorkload

Reals = NDArray[np.float64]
"""[GPUs | thousandths of a CPU | MiB]"""


class AskedCapacity:
    """Compares; `machines` are those of the fleet."""

    def __init__(self, regions: SimulatedRegions, machines: Sequence[Machine]) -> None:
        self._regions = regions
        amounts = np.array([(m.gpus, m.cpus * 1000, m.memory_gib * 1024) for m in machines], np.float64).reshape(-1, 3)
        self._total: Reals = np.maximum(amounts.sum(axis=0), 1.0)
        self._largest: Reals = np.maximum(amounts.max(axis=0, initial=0.0), 1.0)

    def dominant_share(self, work: SimulatedWorkload) -> float:
        """The largest part that it asks for of the fleet's GPUs, CPUs or memory."""
        asked = sum((job.tasks * self._asked(job) for job in work.workload.specification.jobs), np.zeros(RESOURCES))
        return float((asked / self._total).max())

    def size(self, work: SimulatedWorkload) -> float:
        """What it asks for in parts of the largest machine, all resources together."""
        asked = sum((job.tasks * self._asked(job) for job in work.workload.specification.jobs), np.zeros(RESOURCES))
        return float((asked / self._largest).sum())

    def alignment(self, work: SimulatedWorkload) -> float | None:
        """The greatest inner product of what a task of its first job asks for and what is free on a machine that has it, both
        in parts of the largest machine (Tetris §3.1); None: no machine has it."""
        asked = self._asked(work.workload.specification.jobs[0])
        best: float | None = None
        for region in work.eligible:
            for cluster in self._regions.members[region].inventory.clusters:
                state = cluster.arrays.state
                free = state[:, :RESOURCES]
                fits = (free >= asked).all(axis=1) & (state[:, WORKS_AS] != NO_WORK)
                if fits.any():
                    found = float(((free[fits] / self._largest) @ (asked / self._largest)).max())
                    best = found if best is None else max(best, found)
        return best

    def _asked(self, job: JobSpecification) -> Reals:
        """What a task asks for; what it leaves open is its GPUs' part of the fleet's."""
        resources = job.resources
        share = self._total * (resources.gpus / self._total[0])
        return np.array(
            [
                resources.gpus,
                share[1] if resources.cpus is None else request_millicpus(resources.cpus),
                share[2] if resources.memory_gib is None else request_mebibytes(resources.memory_gib),
            ]
        )
