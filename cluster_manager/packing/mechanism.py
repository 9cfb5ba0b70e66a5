"""Packing, the mechanism of MAST (§4.3): best fit, consolidation, and the fewest and least important victims."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.released_capacity import ReleasedCapacity, most_gained
from cluster_manager.capacity.tables import Integers
from cluster_manager.eviction.required_victims import mark_required
from cluster_manager.kernel_scratch import Newcomer
from cluster_manager.mechanism import Affinity, AffinityLevel, BestPlace, Place, Query, Shortfall
from cluster_manager.packing.search import NO_PLACE, find_free_place, find_place_evicting
from cluster_manager.place_rank import least_spread
from domain.placement import AttemptKey

_Free: TypeAlias = tuple[int, int, float, Integers, Integers]
_Evicting: TypeAlias = tuple[int, bool, int, float, Integers, Integers, Integers]


class HardAffinity(ValueError):
    """Packing brings tasks as close together as it can; it does not refuse places that are not close enough."""

    def __init__(self, affinity: Affinity) -> None:
        super().__init__(
            f"the mechanism packing has no hard affinity (asked for: {affinity.level.name.lower()}); ask for a "
            "preferred one, or place the workload in a cluster whose mechanism has it"
        )


class Packing:
    """Best fit in one cluster. Guaranteed and opportunistic jobs, tenants and virtual clusters are all alike to it."""

    __slots__ = ()

    def find(self, query: Query, view: ClusterCapacity) -> Place | Shortfall:
        """See `packing.best_fit` for the place and `eviction.victims` for the victims. Raises HardAffinity."""
        found = self._find(query, {view.position: view}, view.alone)
        return found.place if isinstance(found, BestPlace) else Shortfall(found[0])

    def find_best(
        self, query: Query, views: Sequence[ClusterCapacity], positions: Integers
    ) -> BestPlace | tuple[int, ...]:
        """All clusters in one kernel call. Raises HardAffinity."""
        return self._find(query, views, positions)

    def _find(
        self, query: Query, views: Mapping[int, ClusterCapacity] | Sequence[ClusterCapacity], positions: Integers
    ) -> BestPlace | tuple[int, ...]:
        tables = views[positions[0]].shared.tables
        if query.may_evict:
            rooms = np.zeros(len(positions), np.int64)
            result: _Evicting = find_place_evicting(tables, positions, newcomer_of(query), rooms)
            position, on_last_resort, spread, fragmentation, tasks, entries, rows = result
            if position != NO_PLACE:
                victims = views[position].victims_in(rows.tolist()) if len(rows) else ()
                return BestPlace(position, Place(tasks, entries, victims, spread, fragmentation, on_last_resort))
            return tuple(rooms.tolist())
        free: _Free = find_free_place(tables, positions, newcomer_of(query), least_spread(query))
        position, spread, fragmentation, tasks, entries = free
        if position != NO_PLACE:
            return BestPlace(position, Place(tasks, entries, (), spread, fragmentation))
        return (0,) * len(positions)

    def same_answer_key(self, query: Query, view: ClusterCapacity) -> Hashable:
        """Without evictions standings do not matter, and time only matters where attempts become evictable by it."""
        if not query.may_evict:
            return query.kind.number, query.tasks, query.affinity
        now_s = query.now_s if view.time_matters else 0.0
        asks = query.kind.number, query.tasks, query.affinity, query.standing
        return *asks, now_s, query.victims_from_priority, query.guaranteed

    def refusal_scope(self, query: Query, view: ClusterCapacity) -> Hashable:
        """A preferred affinity only chooses between places; tenants and virtual clusters are all alike here."""
        return query.affinity if query.affinity.hard else None

    def required_victims(self, query: Query, victims: Sequence[AttemptKey], view: ClusterCapacity) -> tuple[bool, ...]:
        rows = view.rows_of(victims)
        here = np.array([row for row in rows if row >= 0], np.int64)
        required = np.zeros(len(here), np.int64)
        if len(here):
            mark_required(view.shared.tables, view.position, newcomer_of(query), here, required)
        flags = iter(required.tolist())
        return tuple(row >= 0 and next(flags) == 1 for row in rows)

    def capacity_after(self, query: Query, capacity: int, released: ReleasedCapacity) -> int:
        table = query.kind.needs.table
        return capacity + most_gained(released.arrays, released.machines, released.amounts, table)


def newcomer_of(query: Query) -> Newcomer:
    """The query as kernels take it. Raises HardAffinity."""
    affinity = query.affinity
    if affinity.hard:
        raise HardAffinity(affinity)
    kind = query.kind
    consolidate = affinity.level is not AffinityLevel.CLUSTER
    return Newcomer(
        query.tasks,
        kind.gpus,
        consolidate,
        kind.tiers,
        kind.needs,
        query.standing,
        query.now_s,
        query.victims_from_priority,
        query.guaranteed,
    )
