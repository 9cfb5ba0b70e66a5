"""A region's idle GPUs in outline: how many machines have how many of them, by model. For guesses only.

Small enough to travel with a region's answers, and enough to foresee where most jobs with GPUs would go: packing
leaves the fewest GPUs idle (`cluster_manager.packing.best_fit`), and that shows in the counts.

Ignores: racks and clusters; CPUs and memory other than the proportional share; everything that is held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.machine_shapes import MOST_GPUS
from cluster_manager.capacity.tables import GPUS, NO_WORK, RESOURCES, SHAPE, WORKS_AS
from domain.identifiers import ANY_GPU_MODEL, GpuModel
from domain.workload import JobSpecification
from regional_scheduler.region_capacity import RegionCapacity

_RADIX = MOST_GPUS + 1


@dataclass(frozen=True, slots=True)
class IdleMachines:
    """So many machines of a model that take work have so many idle GPUs each (at least one)."""

    gpu_model: GpuModel
    idle_gpus: int
    usable_gpus: int
    """For how many of them there are CPUs and memory in proportion."""
    machines: int


@dataclass(frozen=True, slots=True)
class RegionOutline:
    """What a region has on machines that take work, and which of its GPUs are idle."""

    gpus: int
    cpus: float
    idle: tuple[IdleMachines, ...]


def outline_of(region: RegionCapacity) -> RegionOutline:
    """The outline of what the region has at this moment."""
    counts: Counter[tuple[GpuModel, int, int]] = Counter()
    for cluster in region.clusters:
        counts.update(_idle_in(cluster))
    gpus, millicpus = region.in_service
    idle = tuple(IdleMachines(*kind, machines) for kind, machines in sorted(counts.items()))
    return RegionOutline(gpus, millicpus / 1000, idle)


def _idle_in(cluster: ClusterCapacity) -> dict[tuple[GpuModel, int, int], int]:
    """How many machines of the cluster have so many idle and usable GPUs of a model."""
    arrays, shapes = cluster.arrays, cluster.shared.shapes.shapes
    with_idle = np.flatnonzero((arrays.state[:, WORKS_AS] != NO_WORK) & (arrays.state[:, GPUS] > 0))
    free = np.maximum(arrays.state[with_idle, :RESOURCES], 0)
    shape_of = arrays.fixed[with_idle, SHAPE]
    capacity = arrays.shapes[shape_of]
    # What one GPU's share of each resource is; a machine without CPUs or memory has enough of them.
    share = np.maximum(capacity // np.maximum(capacity[:, GPUS : GPUS + 1], 1), 1)
    usable = np.where(capacity > 0, free // share, free[:, GPUS : GPUS + 1]).min(axis=1)
    # Shape, idle and usable GPUs in one number: the latter two are at most MOST_GPUS.
    keys, machines = np.unique((shape_of * _RADIX + free[:, GPUS]) * _RADIX + usable, return_counts=True)
    counts: Counter[tuple[GpuModel, int, int]] = Counter()
    for key, number in zip(keys.tolist(), machines.tolist(), strict=True):
        counts[shapes[key // _RADIX**2].gpu_model, key // _RADIX % _RADIX, key % _RADIX] += number
    return counts


@dataclass(frozen=True, slots=True)
class _Use:
    """So many machines of a kind go from so many idle (and usable) GPUs to `gpus` fewer of both."""

    model: GpuModel
    idle: int
    usable: int
    gpus: int
    machines: int


@dataclass(frozen=True, slots=True)
class OutlinePlace:
    """Where a workload would go: what it would leave idle, how far it would spread, and which machines it takes."""

    fragmentation: int
    spread: int
    taken: tuple[_Use, ...]


class IdleOutline:
    """The outline, as it changes while wins are guessed."""

    __slots__ = ("_machines", "idle_gpus")

    def __init__(self, idle: Iterable[IdleMachines]) -> None:
        self._machines: dict[GpuModel, dict[tuple[int, int], int]] = {}
        self.idle_gpus = 0
        """All of them together, usable or not."""
        for entry in idle:
            self._machines.setdefault(entry.gpu_model, {})[entry.idle_gpus, entry.usable_gpus] = entry.machines
            self.idle_gpus += entry.idle_gpus * entry.machines

    def find(self, jobs: Sequence[JobSpecification]) -> OutlinePlace | None:
        """Where all jobs would find idle GPUs; None when they would not. Jobs without GPUs need none."""
        fragmentation = spread = 0
        taken: list[_Use] = []
        for job in sorted(jobs, key=lambda job: (-job.tasks * job.resources.gpus, job.name)):
            if not job.resources.gpus:
                continue
            uses = self._find(job)
            if uses is None:
                self._shift(taken, -1)
                return None
            self._shift(uses, 1)
            taken.extend(uses)
            fragmentation += sum((use.idle - use.gpus) * use.machines for use in uses)
            spread += sum(use.machines for use in uses) - 1 if job.consolidate else 0
        self._shift(taken, -1)
        return OutlinePlace(fragmentation, spread, tuple(taken))

    def take(self, place: OutlinePlace) -> None:
        """These machines are in use from here on."""
        self._shift(place.taken, 1)

    def _shift(self, uses: Iterable[_Use], sign: int) -> None:
        """Uses the machines (1) or gives them back (-1)."""
        for use in uses:
            counts = self._machines[use.model]
            before, after = (use.idle, use.usable), (use.idle - use.gpus, use.usable - use.gpus)
            counts[before] -= sign * use.machines
            counts[after] = counts.get(after, 0) + sign * use.machines
            self.idle_gpus -= sign * use.gpus * use.machines

    def _find(self, job: JobSpecification) -> tuple[_Use, ...] | None:
        """The machines for one job, by the rule of `cluster_manager.packing.best_fit` without racks.

        Machines are taken whole, until one machine holds the tasks that remain; of these the tightest takes them.
        """
        gpus = job.resources.gpus
        pool = self._pool(job)
        remaining = job.tasks
        taken: list[_Use] = []
        while pool:
            tightest = min((kind for kind in pool if kind.usable // gpus >= remaining), key=_idle, default=None)
            if tightest is not None:
                return (*taken, replace(tightest, gpus=remaining * gpus, machines=1))
            first = pool[0]
            room = first.usable // gpus
            # As soon as one machine holds what remains, the tightest such machine takes it.
            most = max(kind.usable // gpus for kind in pool)
            whole = min(first.machines, -(-(remaining - most) // room))
            taken.append(replace(first, gpus=room * gpus, machines=whole))
            remaining -= whole * room
            pool[:1] = [replace(first, machines=first.machines - whole)] if whole < first.machines else []
        return None

    def _pool(self, job: JobSpecification) -> list[_Use]:
        """The machines that hold at least one task, in the order of being taken whole."""
        gpus = job.resources.gpus
        asked = job.resources.gpu_model
        pool = [
            _Use(model, idle, usable, 0, machines)
            for model in (sorted(self._machines) if asked == ANY_GPU_MODEL else [asked])
            for (idle, usable), machines in self._machines.get(model, {}).items()
            if machines > 0 and usable >= gpus
        ]
        if job.consolidate:
            pool.sort(key=lambda kind: (-(kind.usable // gpus), _left_idle(kind, gpus), *_idle(kind)))
        else:
            pool.sort(key=lambda kind: (_left_idle(kind, gpus), -(kind.usable // gpus), *_idle(kind)))
        return pool


def _idle(kind: _Use) -> tuple[int, GpuModel, int]:
    return kind.idle, kind.model, kind.usable


def _left_idle(kind: _Use, gpus: int) -> int:
    """What a machine is left with when it holds as many such tasks as it can."""
    return kind.idle - kind.usable // gpus * gpus
