"""Packing, the mechanism of MAST (§4.3): best fit, consolidation, and the fewest and least important victims."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from cluster_manager.capacity.cluster_capacity import ClusterCapacity
from cluster_manager.capacity.cluster_tables import TablesOfClusters
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


NO_CAPACITY = Shortfall(0)
"""For not even one task, as far as a search without evictions says."""


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
        if query.may_evict:
            found = _find_evicting(query, {view.position: view}, view.alone)
            return found.place if isinstance(found, BestPlace) else Shortfall(found[0])
        position, place = _find_free(query, view.shared.tables, view.alone)
        return place if position != NO_PLACE else NO_CAPACITY

    def find_best(
        self, query: Query, views: Sequence[ClusterCapacity], positions: Integers
    ) -> BestPlace | tuple[int, ...]:
        """All clusters in one kernel call. Raises HardAffinity."""
        if query.may_evict:
            return _find_evicting(query, views, positions)
        position, place = _find_free(query, views[0].shared.tables, positions)
        return BestPlace(position, place) if position != NO_PLACE else (0,) * len(positions)

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


def _find_free(query: Query, tables: TablesOfClusters, positions: Integers) -> tuple[int, Place]:
    """The position of the best place without evictions, and the place; NO_PLACE, and one without tasks."""
    kind = query.kind
    table, least = kind.needs
    found: _Free = find_free_place(
        tables, positions, table, least, query.tasks, kind.gpus, is_consolidated(query), kind.tiers, least_spread(query)
    )
    position, spread, fragmentation, tasks, entries = found
    return position, Place(tasks, entries, (), spread, fragmentation)


def _find_evicting(
    query: Query, views: Mapping[int, ClusterCapacity] | Sequence[ClusterCapacity], positions: Integers
) -> BestPlace | tuple[int, ...]:
    """The same with evictions where there is no place otherwise; the capacities where there is none with them, too."""
    rooms = np.zeros(len(positions), np.int64)
    tables = views[positions[0]].shared.tables
    found: _Evicting = find_place_evicting(tables, positions, newcomer_of(query), rooms)
    position, on_last_resort, spread, fragmentation, tasks, entries, rows = found
    if position == NO_PLACE:
        return tuple(rooms.tolist())
    victims = views[position].victims_in(rows.tolist()) if len(rows) else ()
    return BestPlace(position, Place(tasks, entries, victims, spread, fragmentation, on_last_resort))


def is_consolidated(query: Query) -> bool:
    """Whether the tasks should be close together. Raises HardAffinity."""
    affinity = query.affinity
    if affinity.hard:
        raise HardAffinity(affinity)
    return affinity.level is not AffinityLevel.CLUSTER


def newcomer_of(query: Query) -> Newcomer:
    """The query as kernels take it. Raises HardAffinity."""
    kind = query.kind
    return Newcomer(
        query.tasks,
        kind.gpus,
        is_consolidated(query),
        kind.tiers,
        kind.needs,
        query.standing,
        query.now_s,
        query.victims_from_priority,
        query.guaranteed,
    )
