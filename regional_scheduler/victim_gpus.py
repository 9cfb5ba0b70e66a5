"""Which victims jobs cannot do without, as the sum of GPUs says at once: most of them, where a full region is cleared."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.tables import GPUS
from domain.placement import AttemptKey, Holding
from regional_scheduler.region_capacity import RegionCapacity


class VictimGpus:
    """GPUs that victims hold and that jobs need, by the position of clusters in the region."""

    def __init__(self, region: RegionCapacity, needed: Sequence[tuple[int, int]], victims: Sequence[Holding]) -> None:
        """`needed`: of each job the position of its cluster, and the GPUs of all its tasks."""
        position_of = {cluster: position for position, cluster in enumerate(region.cluster_ids)}
        self._held: dict[AttemptKey, dict[int, int]] = {}
        self._surplus = {position: _idle_gpus(region.clusters[position]) for position, _ in needed}
        """How many there are at most beyond what the jobs need, once all victims that are not spared are gone."""
        for position, gpus in needed:
            self._surplus[position] -= gpus
        for holding in victims:
            held = self._held.setdefault(holding.key, {})
            for placement in holding.placements:
                position = position_of[placement.cluster]
                held[position] = held.get(position, 0) + len(placement.gpu_indices)
            self._add_to_surplus(holding.key, 1)

    def clusters(self, victim: AttemptKey) -> Collection[int]:
        """Where it holds anything."""
        return self._held[victim].keys()

    def beside(self, victim: AttemptKey, others: Sequence[AttemptKey]) -> list[AttemptKey]:
        """Those of the others that hold anything in a cluster where the victim does, in their order."""
        here = self._held[victim].keys()
        return [other for other in others if not here.isdisjoint(self._held[other].keys())]

    def lacks_gpus_without(self, victim: AttemptKey) -> bool:
        """Whether the jobs surely have too few GPUs in one of its clusters if it stays too."""
        return any(gpus > self._surplus.get(position, gpus) for position, gpus in self._held[victim].items())

    def spare(self, victim: AttemptKey) -> None:
        """It stays."""
        self._add_to_surplus(victim, -1)

    def _add_to_surplus(self, victim: AttemptKey, sign: int) -> None:
        for position, gpus in self._held[victim].items():
            if position in self._surplus:
                self._surplus[position] += sign * gpus


def _idle_gpus(cluster: ClusterCapacity) -> int:
    """Free or being given up, whatever the state of their machines: at least as many as there are for jobs."""
    arrays = cluster.arrays
    return int(np.maximum(arrays.state[:, GPUS] + arrays.leaving[:, GPUS], 0).sum())
