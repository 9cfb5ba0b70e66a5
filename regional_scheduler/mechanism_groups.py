"""Which clusters of a region can be asked in one call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster_manager.capacity.tables import Integers
from cluster_manager.mechanism import PlacementMechanism, SeveralClusters


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
