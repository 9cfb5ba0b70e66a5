"""An attempt of a region, and the clusters in which it holds something."""

from __future__ import annotations

from typing import NamedTuple

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from domain.placement import Holding


class HeldAttempt(NamedTuple):
    """What it holds in all of them together."""

    holding: Holding
    parts: tuple[ClusterCapacity, ...]

    def as_in_parts(self) -> HeldAttempt:
        """The same, saying of evictions what its parts say."""
        part = self.parts[0].holding(self.holding.key)
        if part is None:
            return self
        return self._replace(
            holding=self.holding._replace(evictable_from_s=part.evictable_from_s, saved_s=part.saved_s)
        )
