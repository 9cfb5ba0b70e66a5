"""Places for guaranteed work (HiveD §3.1, §3.3): first in the owner's own view, then in the physical cluster.

The view decides which virtual cells the tasks take; binding decides which physical cells these are: usable ones first,
then those with the fewest opportunistic GPUs. A search goes through the owner's cells without evicting, then with what
leaves anyway, then with work of ever better standing gone, and spares at last whatever need not leave.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from cluster_manager.cells.binding import Trail
from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.gang import NodePlace, find_places
from cluster_manager.cells.losing_tenants import LosingTenants
from cluster_manager.cells.requests import CellRequest
from cluster_manager.cells.task_limits import TaskLimits
from cluster_manager.cells.virtual_view import VirtualView
from cluster_manager.cells.work import Placement, TaskCells, Work
from domain.cells import CellPair
from domain.identifiers import MachineId


def place_guaranteed(
    cells: CellCluster,
    request: CellRequest,
    barred: Collection[MachineId],
    protected: Collection[Hashable] = (),
    limits: TaskLimits | None = None,
) -> Placement | None:
    """The place in the request's virtual cluster, within the limits and on none of the barred machines; None where there is none.

    Of its virtual cluster's work, what is protected is not evicted, except if it is leaving already.

    Raises UnknownCells. The cells are as before.
    """
    views = cells.views_for(request)
    searches = [
        _ViewSearch(cells, request, chain, view, cells.blocked(chain, barred), protected, limits)
        for chain, view in views
    ]
    for search in searches:
        placement = search.try_without(())
        if placement is not None:
            return placement
    if not request.may_evict:
        return None
    found = [placement for search in searches if (placement := search.try_evicting()) is not None]
    return min(found, key=lambda placement: _harm(cells, placement)) if found else None


def _harm(cells: CellCluster, placement: Placement) -> tuple[int, int]:
    """Work of the virtual cluster that loses its cells: such as must be evicted, then such as may be downgraded.

    What else is in the way does not count: the choice is to be that of a private cluster.
    """
    losing = [cells.work[key] for key in (*placement.victims, *placement.downgraded)]
    own = [work.request.yields_to_downgrade for work in losing if work.view is not None]
    return own.count(False), own.count(True)


@dataclass(frozen=True, slots=True, eq=False)
class _ViewSearch:
    """The search for one request in one view."""

    cells: CellCluster
    request: CellRequest
    chain: int
    view: VirtualView
    blocked: Collection[int] | None
    protected: Collection[Hashable]
    limits: TaskLimits | None

    def try_evicting(self) -> Placement | None:
        """A place with the fewest and least important of the owner's work gone."""
        lower = self._lower()
        if not lower:
            return None
        leaving = [work.request.key for work in lower if work.leaving]
        if leaving:
            placement = self.try_without(leaving)
            if placement is not None:
                return placement
        if lower[0].request.standing != lower[-1].request.standing and self.try_without(self._keys(lower)) is None:
            # Not even with all of it gone: so there is no need to try one standing after the other.
            return None
        gone = list(leaving)
        for number, work in enumerate(lower):
            if not work.leaving:
                gone.append(work.request.key)
            if number + 1 < len(lower) and lower[number + 1].request.standing == work.request.standing:
                continue
            placement = self.try_without(gone)
            if placement is not None:
                return self._spare(placement, leaving)
        return None

    @staticmethod
    def _keys(lower: Sequence[Work]) -> list[Hashable]:
        return [work.request.key for work in lower]

    def _lower(self) -> list[Work]:
        """The work in the view that may be evicted for the request, worst standing and longest there first."""
        standing, protected = self.request.standing, self.protected
        there = [self.cells.work[key] for key in self.view.holders()]
        lower = [
            work
            for work in there
            if standing < work.request.standing and (work.leaving or work.request.key not in protected)
        ]
        return sorted(
            lower, key=lambda work: (-work.request.standing.priority, -work.request.standing.level, work.sequence)
        )

    def _spare(self, placement: Placement, leaving: Sequence[Hashable]) -> Placement:
        """The same without what need not go, the best standing and the latest spared first."""
        gone = self._own(placement)
        for key in list(reversed(gone)):
            if key not in gone:
                continue
            fewer = [other for other in gone if other != key]
            better = self.try_without([*leaving, *fewer])
            if better is not None:
                placement, gone = better, [other for other in fewer if other in self._own(better)]
        return placement

    def _own(self, placement: Placement) -> list[Hashable]:
        """The work of the view that goes for the placement, in the order of `_lower`."""
        going = {*placement.victims, *placement.downgraded}
        return [work.request.key for work in self._lower() if work.request.key in going]

    def try_without(self, gone: Collection[Hashable]) -> Placement | None:
        """A place if this work of the view were gone. The cells are as before."""
        revision = self.cells.revision
        trail = Trail(losing=LosingTenants(self.cells.occupancy(self.chain), self.cells.weights))
        downgraded: list[Work] = []
        try:
            return self._search(gone, trail, downgraded, revision)
        finally:
            self.view.binding.undo(trail)
            for work in reversed(downgraded):
                self.cells.seat(work, self.view.key, [task.pairs for task in work.tasks])
            self.cells.revision = revision

    def _search(
        self, gone: Collection[Hashable], trail: Trail, downgraded: list[Work], revision: int
    ) -> Placement | None:
        """Each round either ends the search or binds a cell to a machine of no use, which the next one then avoids."""
        out_of_use = self.cells.occupancy(self.chain).unusable if self.blocked is None else self.blocked
        while True:
            free = self.view.free(gone, out_of_use)
            places = find_places(
                self.request.gang, free if self.limits is None else self.limits.on_nodes(self.chain, free)
            )
            if places is None:
                return None
            self._downgrade(places, gone, downgraded)
            trail.alike.clear()
            tasks = [self._task(place, trail) for place in places]
            if any(task.machine in out_of_use for task in tasks):
                continue
            return self._placement(places, tasks, gone, downgraded, revision)

    def _downgrade(self, places: Sequence[NodePlace], gone: Collection[Hashable], downgraded: list[Work]) -> None:
        """Takes the cells from those who lose them and may go on elsewhere; so others may be bound to them."""
        for key in self._losers(places, gone):
            work = self.cells.work[key]
            if work.request.yields_to_downgrade and not work.leaving:
                self.cells.unseat(work)
                downgraded.append(work)

    def _losers(self, places: Sequence[NodePlace], gone: Collection[Hashable]) -> list[Hashable]:
        """The work that is gone and holds any of these GPUs."""
        if not gone:
            return []
        losers = {key: None for place in places for key in self.view.users(place.node, place.bits)}
        return list(losers)

    def _task(self, place: NodePlace, trail: Trail) -> TaskCells:
        pairs = self.view.binding.choose(place.node, place.bits, self.blocked, trail)
        return physical_task(self.cells, self.chain, pairs)

    def _placement(
        self,
        places: Sequence[NodePlace],
        tasks: list[TaskCells],
        gone: Collection[Hashable],
        downgraded: Sequence[Work],
        revision: int,
    ) -> Placement | None:
        cells = self.cells
        present = list(cells.on(tasks))
        present += [key for key in self._losers(places, gone) if key not in present]
        victims = tuple(key for key in present if not cells.work[key].leaving)
        if victims and not self.request.may_evict:
            return None
        unseated = tuple(work.request.key for work in downgraded)
        losing = tuple(key for key in unseated if key not in victims)
        return Placement(self.request, self.view.key, tuple(tasks), victims, losing, unseated, tuple(present), revision)


def physical_task(cells: CellCluster, chain: int, pairs: tuple[CellPair, ...]) -> TaskCells:
    """The GPUs that these cells are."""
    of_chain = cells.chains[chain]
    bits = 0
    for level, _, physical in pairs:
        bits |= of_chain.bits_of(level, physical)
    level, _, physical = pairs[0]
    return TaskCells(chain, physical * of_chain.sizes[level] // of_chain.gpus_per_machine, bits, pairs)
