"""A region's idle GPUs in outline: how many machines have how many of them, by model. For guesses only.

Small enough to travel with a region's answers, and enough to foresee where most jobs with GPUs would go: packing
leaves the fewest GPUs idle (`cluster_manager.packing`), and that shows in the counts.

Ignores: racks and clusters, CPUs and memory, everything held by somebody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cluster_manager.inventory import Inventory
from cluster_manager.machines import GPUS, IN_SERVICE, MILLICPUS, MODEL, NO_WORK, RESOURCES, SHAPE, WORKS_AS
from domain.identifiers import ANY_GPU_MODEL, GpuModel
from domain.workload import JobSpecification


@dataclass(frozen=True, slots=True)
class IdleMachines:
    """So many machines of a model that take work have so many idle GPUs each (at least one)."""

    gpu_model: GpuModel
    idle_gpus: int
    machines: int


@dataclass(frozen=True, slots=True)
class RegionOutline:
    """What a region has on machines that take work, and which of its GPUs are idle."""

    gpus: int
    cpus: float
    idle: tuple[IdleMachines, ...]


def outline_of(inventory: Inventory) -> RegionOutline:
    """The outline of what the region has at this moment."""
    layout = inventory.layout
    arrays = layout.arrays
    idle = np.where(arrays.state[:, WORKS_AS] != NO_WORK, np.maximum(arrays.state[:, GPUS], 0), 0)
    some = np.flatnonzero(idle)
    model = arrays.shapes[arrays.fixed[some, SHAPE], MODEL]
    width = int(idle.max(initial=0)) + 1
    counts = np.bincount(model * width + idle[some])
    models = {number: model for model, number in layout.number_of_model.items()}
    in_service = arrays.cluster_room[:, IN_SERVICE : IN_SERVICE + RESOURCES].sum(axis=0)
    return RegionOutline(
        gpus=int(in_service[GPUS]),
        cpus=int(in_service[MILLICPUS]) / 1000,
        idle=tuple(
            IdleMachines(models[key // width], key % width, int(counts[key])) for key in np.flatnonzero(counts).tolist()
        ),
    )


_Taken: TypeAlias = tuple[tuple[GpuModel, int, int, int], ...]
"""Model, idle GPUs before, idle GPUs after, number of machines."""


@dataclass(frozen=True, slots=True)
class ShadowPlace:
    """Where a workload would go: what it would leave idle, how far it would spread, and which machines it takes."""

    fragmentation: int
    spread: int
    taken: _Taken


class Shadow:
    """The outline, as it changes while wins are guessed."""

    __slots__ = ("_machines",)

    def __init__(self, idle: Iterable[IdleMachines]) -> None:
        self._machines: dict[GpuModel, dict[int, int]] = {}
        for entry in idle:
            self._machines.setdefault(entry.gpu_model, {})[entry.idle_gpus] = entry.machines

    def find(self, jobs: Sequence[JobSpecification]) -> ShadowPlace | None:
        """Where all jobs would find idle GPUs; None when they would not. Jobs without GPUs need none."""
        fragmentation = spread = 0
        taken: list[tuple[GpuModel, int, int, int]] = []
        for job in sorted(jobs, key=lambda job: (-job.tasks * job.resources.gpus, job.name)):
            if not job.resources.gpus:
                continue
            place = self._find(job)
            if place is None:
                self._put_back(taken)
                return None
            self.take(place)
            taken.extend(place)
            fragmentation += sum(after * machines for _, _, after, machines in place)
            spread += sum(machines for *_, machines in place) - 1 if job.consolidate else 0
        self._put_back(taken)
        return ShadowPlace(fragmentation, spread, tuple(taken))

    @property
    def idle_gpus(self) -> int:
        """All idle GPUs together."""
        return sum(idle * machines for counts in self._machines.values() for idle, machines in counts.items())

    def take(self, taken: Iterable[tuple[GpuModel, int, int, int]]) -> None:
        """These machines are in use from here on."""
        for model, before, after, machines in taken:
            counts = self._machines[model]
            counts[before] -= machines
            counts[after] = counts.get(after, 0) + machines

    def _put_back(self, taken: Sequence[tuple[GpuModel, int, int, int]]) -> None:
        for model, before, after, machines in reversed(taken):
            counts = self._machines[model]
            counts[after] -= machines
            counts[before] += machines

    def _find(self, job: JobSpecification) -> _Taken | None:
        """The machines for one job, by the rule of `cluster_manager.packing` without racks.

        Machines are taken whole, until one machine holds the tasks that remain; of these the tightest takes them.
        """
        gpus = job.resources.gpus
        pool = self._pool(job)
        remaining = job.tasks
        taken: list[tuple[GpuModel, int, int, int]] = []
        while pool:
            tightest = min((entry for entry in pool if entry[0] // gpus >= remaining), default=None)
            if tightest is not None:
                idle, model, _ = tightest
                return (*taken, (model, idle, idle - remaining * gpus, 1))
            idle, model, machines = pool[0]
            whole = min(machines, (remaining - 1) // (idle // gpus))
            taken.append((model, idle, idle % gpus, whole))
            remaining -= whole * (idle // gpus)
            pool[:1] = [(idle, model, machines - whole)] if whole < machines else []
        return None

    def _pool(self, job: JobSpecification) -> list[tuple[int, GpuModel, int]]:
        """Idle GPUs, model and number of the machines that hold at least one task, in the order of being taken whole."""
        gpus = job.resources.gpus
        asked = job.resources.gpu_model
        pool = [
            (idle, model, machines)
            for model in (sorted(self._machines) if asked == ANY_GPU_MODEL else [asked])
            for idle, machines in self._machines.get(model, {}).items()
            if machines > 0 and idle >= gpus
        ]
        if job.consolidate:
            pool.sort(key=lambda entry: (-(entry[0] // gpus), entry[0] % gpus, entry[1]))
        else:
            pool.sort(key=lambda entry: (entry[0] % gpus, -entry[0], entry[1]))
        return pool
