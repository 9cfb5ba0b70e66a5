"""What is released in a region, cluster by cluster, and who hears of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from cluster_manager.capacity.released_capacity import ReleasedCapacity
from cluster_manager.mechanism import PlacementMechanism

if TYPE_CHECKING:
    from regional_scheduler.region_capacity import RegionCapacity


class RegionRelease(NamedTuple):
    """Capacity was released in one cluster of a region."""

    region: RegionCapacity
    position: int
    """Of the cluster in the region."""
    released: ReleasedCapacity

    @property
    def mechanism(self) -> PlacementMechanism:
        """The cluster's."""
        return self.region.mechanisms[self.position]


class CapacityWatcher(Protocol):
    """Hears of all that is released in a region, after it has happened; but of nothing that is tentative."""

    @property
    def listens(self) -> bool:
        """False while no release could mean anything to it: then it need not hear of any."""
        ...

    def capacity_released(self, release: RegionRelease) -> None: ...


class ClusterListener:
    """Passes on what one cluster releases."""

    __slots__ = ("_position", "_region")

    def __init__(self, region: RegionCapacity, position: int) -> None:
        self._region = region
        self._position = position

    @property
    def listens(self) -> bool:
        for watcher in self._region.watchers:  # noqa: SIM110 (half the time of a generator, at every release)
            if watcher.listens:
                return True
        return False

    def capacity_released(self, released: ReleasedCapacity) -> None:
        for watcher in self._region.watchers:
            watcher.capacity_released(RegionRelease(self._region, self._position, released))
