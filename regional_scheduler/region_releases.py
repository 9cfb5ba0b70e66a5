"""What is released in a region, cluster by cluster, and who hears of it.

Invariant: nothing here keeps a watcher or the region's capacity alive. A region of tens of thousands of machines that another
one has taken the place of is freed at once, not by a search for cycles, during which no thread of the process goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from weakref import ref

from cluster_manager.capacity.released_capacity import ReleasedCapacity
from cluster_manager.mechanism import PlacementMechanism


class RegionRelease(NamedTuple):
    """Capacity was released in one cluster of a region."""

    position: int
    """Of the cluster in the region."""
    mechanism: PlacementMechanism
    """The cluster's."""
    released: ReleasedCapacity


class CapacityWatcher(Protocol):
    """Hears of all that is released in a region, after it has happened; but of nothing that is tentative."""

    @property
    def listens(self) -> bool:
        """False while no release could mean anything to it: then it need not hear of any."""
        ...

    def capacity_released(self, release: RegionRelease) -> None: ...


class ClusterListener:
    """Passes on what one cluster releases, to the watchers that there still are."""

    __slots__ = ("_mechanism", "_position", "_watchers")

    def __init__(self, position: int, mechanism: PlacementMechanism, watchers: Sequence[ref[CapacityWatcher]]) -> None:
        """`watchers` may grow."""
        self._position = position
        self._mechanism = mechanism
        self._watchers = watchers

    @property
    def listens(self) -> bool:
        for watcher in self._watchers:
            there = watcher()
            if there is not None and there.listens:
                return True
        return False

    def capacity_released(self, released: ReleasedCapacity) -> None:
        for watcher in self._watchers:
            there = watcher()
            if there is not None:
                there.capacity_released(RegionRelease(self._position, self._mechanism, released))
