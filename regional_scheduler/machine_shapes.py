"""What an empty machine is good for, by its shape: a region has many machines and few shapes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TypeAlias

from domain.fleet import Cluster
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel
from domain.resources import (
    TaskResources,
    capacity_mebibytes,
    capacity_millicpus,
    request_mebibytes,
    request_millicpus,
)

Amounts: TypeAlias = tuple[int, int, int]
"""GPUs, thousandths of a CPU, MiB: the inventory's units."""


@dataclass(frozen=True, slots=True)
class MachineShape:
    """What all machines of one kind have."""

    gpu_model: GpuModel
    capacity: Amounts

    @property
    def gpus(self) -> int:
        return self.capacity[0]

    def suits(self, resources: TaskResources) -> bool:
        """Whether its GPUs are of the kind that the task asks for (always, when it asks for none)."""
        return resources.gpus == 0 or (self.gpus > 0 and resources.gpu_model in (ANY_GPU_MODEL, self.gpu_model))

    def need_of(self, resources: TaskResources) -> Amounts:
        """What a task takes here. CPUs and memory left open are the proportional share, rounded down (Synergy §2)."""
        _, millicpus, mebibytes = self.capacity
        return (
            resources.gpus,
            millicpus * resources.gpus // max(self.gpus, 1)
            if resources.cpus is None
            else request_millicpus(resources.cpus),
            mebibytes * resources.gpus // max(self.gpus, 1)
            if resources.memory_gib is None
            else request_mebibytes(resources.memory_gib),
        )

    def room_for(self, resources: TaskResources, most: int) -> int:
        """How many such tasks one empty machine holds, at most `most`."""
        if not self.suits(resources):
            return 0
        return room_in(self.capacity, self.need_of(resources), most)


def room_in(capacity: Amounts, need: Amounts, most: int) -> int:
    """How many times the need goes into the capacity, at most `most`."""
    room = most
    for has, needs in zip(capacity, need, strict=True):
        if needs > 0:
            room = min(room, has // needs)
    return room


@dataclass(frozen=True, slots=True)
class EmptyCluster:
    """How many machines of each shape a cluster has."""

    cluster: ClusterId
    machines: tuple[tuple[MachineShape, int], ...]

    @staticmethod
    def of(cluster: Cluster) -> EmptyCluster:
        """All its machines, as if nothing ran on them and all were up."""
        kinds = Counter(
            (machine.gpu_model, machine.gpus, machine.cpus, machine.memory_gib) for machine in cluster.machines()
        )
        shapes: dict[MachineShape, int] = {}
        for (model, gpus, cpus, memory_gib), machines in kinds.items():
            shape = MachineShape(model, (gpus, capacity_millicpus(cpus), capacity_mebibytes(memory_gib)))
            shapes[shape] = shapes.get(shape, 0) + machines
        return EmptyCluster(cluster.cluster, tuple(shapes.items()))

    def room_for(self, resources: TaskResources, most: int) -> int:
        """How many such tasks the cluster holds, counted up to `most` on each machine."""
        return sum(shape.room_for(resources, most) * machines for shape, machines in self.machines)
