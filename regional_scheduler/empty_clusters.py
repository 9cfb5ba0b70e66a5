"""What an empty cluster is good for, by the shapes of its machines."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from cluster_manager.capacity.machine_shapes import MachineShape
from domain.fleet import Cluster
from domain.identifiers import ClusterId
from domain.resources import TaskResources


@dataclass(frozen=True, slots=True)
class EmptyCluster:
    """How many machines of each shape a cluster has."""

    cluster: ClusterId
    machines: tuple[tuple[MachineShape, int], ...]

    @staticmethod
    def of(cluster: Cluster) -> EmptyCluster:
        """All its machines, as if nothing ran on them and all were up."""
        counts = Counter(MachineShape.of(machine) for machine in cluster.machines())
        return EmptyCluster(cluster.cluster, tuple(counts.items()))

    def room_for(self, resources: TaskResources, most: int) -> int:
        """How many such tasks the cluster holds, counted up to `most` on each machine."""
        return sum(shape.tasks_when_empty(resources, most) * machines for shape, machines in self.machines)
