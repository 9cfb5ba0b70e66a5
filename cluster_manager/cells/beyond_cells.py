"""Which jobs the cells of their tenant could not hold even if nothing else were there, so that only what is idle may.

They ask for too many GPUs, for too many CPUs or too much memory beside them, or for more closeness than the tenant's cells have; some
only beside the other jobs of their workload.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import numpy as np

from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.tables import RESOURCES, SHAPE, Integers
from cluster_manager.cells.gang import find_places
from cluster_manager.cells.gangs_of_jobs import gang_of, pinned_cell_of
from cluster_manager.cells.held_work import HeldWork
from cluster_manager.cells.task_limits import Fits
from cluster_manager.cells.virtual_view import VirtualView
from cluster_manager.mechanism import Query
from cluster_manager.recently_used import RecentlyUsed

JOBS_REMEMBERED: Final = 4096


class BeyondCells:
    """Of one cluster. A pinned cell is asked for by name: nothing takes its place."""

    __slots__ = ("_known", "_work")

    def __init__(self, work: HeldWork) -> None:
        self._work = work
        self._known: RecentlyUsed[Hashable, bool] = RecentlyUsed(JOBS_REMEMBERED)

    def views_of(self, query: Query, fits: Fits, pinned_cell: str | None) -> list[tuple[int, VirtualView]]:
        """The cells of its virtual cluster on which its tasks fit, with the number of their chain: the pinned one, or all others
        than pinned ones."""
        cells = self._work.cells
        number_of = {chain.name: number for number, chain in enumerate(cells.chains)}
        return [
            (number_of[key.chain], view)
            for key, view in cells.views.items()
            if key.virtual_cluster == query.virtual_cluster and key.chain in fits.chains and key.pinned == pinned_cell
        ]

    def has_too_few_gpus(self, query: Query, fits: Fits) -> bool:
        """Whether the cells have fewer GPUs in any chain than the job asks for."""
        if pinned_cell_of(query.affinity) is not None:
            return False
        views = self.views_of(query, fits, None)
        return bool(views) and query.tasks * query.kind.gpus > max(int(view.nodes.sizes.sum()) for _, view in views)

    def asked_for(self, query: Query, fits: Fits, capacity: ClusterCapacity) -> bool:
        """Whether the cells, which have no place for the job, could not hold it even with nothing there but what is supposed: the
        other jobs of its workload that have a place."""
        if pinned_cell_of(query.affinity) is not None:
            return False
        return self._alone(query, fits) or (capacity.supposes and self._beside_others(query, fits, capacity))

    def _alone(self, query: Query, fits: Fits) -> bool:
        key = query.kind.number, query.tasks, query.affinity, query.virtual_cluster
        known = self._known.get(key)
        if known is None:
            gang = gang_of(query.affinity, query.tasks, query.kind.gpus)
            known = all(
                find_places(gang, fits.limits.on_nodes(chain, view.empty())) is None
                for chain, view in self.views_of(query, fits, None)
            )
            self._known.put(key, known)
        return known

    def _beside_others(self, query: Query, fits: Fits, capacity: ClusterCapacity) -> bool:
        """To be asked after `HeldWork.suppose`."""
        gang = gang_of(query.affinity, query.tasks, query.kind.gpus)
        return all(
            find_places(
                gang,
                fits.limits.on_nodes(
                    chain, self._work.free_beside_supposed(view), self._left_on_nodes(query, view, capacity)
                ),
            )
            is None
            for chain, view in self.views_of(query, fits, None)
        )

    def _left_on_nodes(self, query: Query, view: VirtualView, capacity: ClusterCapacity) -> dict[int, int]:
        """[node] of those that supposed jobs use: how many tasks fit beside all that is supposed on the machine."""
        used: dict[int, Integers] = {}
        for entries, released in capacity.suppositions():
            for entry in entries if released is None else ():
                row = int(entry[MACHINE])
                used[row] = used.get(row, np.zeros(RESOURCES, np.int64)) + entry[:RESOURCES]
        arrays, table = capacity.arrays, query.kind.needs.table
        left: dict[int, int] = {}
        for node, row in self._work.supposed_nodes(view):
            shape = arrays.fixed[row, SHAPE]
            remaining = np.maximum(arrays.shapes[shape] - used[row], 0)
            need = table[shape, :RESOURCES]
            left[node] = int((remaining[need > 0] // need[need > 0]).min())
        return left
