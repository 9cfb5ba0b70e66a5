"""Which clusters of a region can be asked in one call, and which have mechanisms that offer more than they must."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.tables import Integers
from cluster_manager.mechanism import ChangesCells, PlacementMechanism, ReclaimsForOwners, SeveralClusters
from cluster_manager.packing.mechanism import Packing


def groups_of(mechanisms: Sequence[PlacementMechanism]) -> tuple[Integers, tuple[Integers, ...]]:
    """[cluster] the number of its group, and the positions of each group: clusters that can be asked in one call."""
    group_of = np.zeros(len(mechanisms), np.int64)
    firsts: list[PlacementMechanism] = []
    for position, mechanism in enumerate(mechanisms):
        same = [number for number, first in enumerate(firsts) if first is mechanism]
        if not same or not isinstance(mechanism, SeveralClusters):
            same = [len(firsts)]
            firsts.append(mechanism)
        group_of[position] = same[0]
    return group_of, tuple(np.flatnonzero(group_of == group) for group in range(len(firsts)))


def packing_positions(mechanisms: Sequence[PlacementMechanism]) -> Integers:
    """The positions of the clusters that pack: what they count is exact for any number of tasks, so a job can be split over
    them."""
    return np.array([position for position, one in enumerate(mechanisms) if isinstance(one, Packing)], np.int64)


def reclaiming_for_owners(
    mechanisms: Sequence[PlacementMechanism], clusters: Sequence[ClusterCapacity]
) -> tuple[tuple[ReclaimsForOwners, ClusterCapacity], ...]:
    """The mechanisms for whose owners others leave, each with its cluster."""
    both = zip(mechanisms, clusters, strict=True)
    return tuple((one, cluster) for one, cluster in both if isinstance(one, ReclaimsForOwners))


def changing_cells(
    mechanisms: Sequence[PlacementMechanism], clusters: Sequence[ClusterCapacity]
) -> tuple[tuple[ChangesCells, ClusterCapacity], ...]:
    """The mechanisms that change the cells of live attempts, each with its cluster."""
    return tuple(
        (one, cluster) for one, cluster in zip(mechanisms, clusters, strict=True) if isinstance(one, ChangesCells)
    )
