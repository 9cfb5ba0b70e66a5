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
from cluster_manager.mechanism import AffinityLevel, BestPlace, Place, Query, Shortfall
from cluster_manager.packing.locality_score import RACK_WEIGHT
from cluster_manager.packing.one_unit import ALONE, ALONE_THERE, UnitSearch, tables_of_unit
from cluster_manager.packing.search import NO_PLACE, find_free_place, find_place_evicting
from cluster_manager.place_rank import least_spread, rank_of
from domain.eviction import EvictionRule
from domain.placement import AttemptKey

_Free: TypeAlias = tuple[int, int, float, Integers, Integers]
_Evicting: TypeAlias = tuple[int, bool, int, float, Integers, Integers, Integers]


NO_CAPACITY = Shortfall(0)
"""For not even one task, as far as a search without evictions says."""


class Packing:
    """Best fit in one cluster. Guaranteed and opportunistic jobs, tenants and virtual clusters are all alike to it.

    It knows machines and racks, and no other cells: a job that must have any finds no place.
    """

    __slots__ = ()

    def find(self, query: Query, view: ClusterCapacity) -> Place | Shortfall:
        """See `packing.best_fit` for the place and `eviction.victims` for the victims; `packing.one_unit` for jobs that
        must be on one machine or in one rack."""
        if query.affinity.hard:
            return _find_in_one_unit(query, view)
        if query.may_evict:
            found = _find_evicting(query, {view.position: view}, view.alone)
            return found.place if isinstance(found, BestPlace) else Shortfall(found[0])
        position, place = _find_free(query, view.shared.tables, view.alone)
        return place if position != NO_PLACE else NO_CAPACITY

    def find_best(
        self, query: Query, views: Sequence[ClusterCapacity], positions: Integers
    ) -> BestPlace | tuple[int, ...]:
        """All clusters in one kernel call, but for a job that must be on one machine or in one rack."""
        if query.affinity.hard:
            return _best_in_one_unit(self, query, views, positions)
        if query.may_evict:
            return _find_evicting(query, views, positions)
        position, place = _find_free(query, views[0].shared.tables, positions)
        return BestPlace(position, place) if position != NO_PLACE else (0,) * len(positions)

    def same_answer_key(self, query: Query, view: ClusterCapacity) -> Hashable:
        """Without evictions standings do not matter, and time only matters where attempts become evictable by it, or where it
        decides which of their work is lost."""
        if not query.may_evict:
            return query.kind.number, query.tasks, query.affinity
        now_s = query.now_s if view.time_matters or view.rule.spares_work else 0.0
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
            mark_required(view.shared.tables, view.position, newcomer_of(query, view.rule), here, required)
        flags = iter(required.tolist())
        return tuple(row >= 0 and next(flags) == 1 for row in rows)

    def capacity_after(self, query: Query, capacity: int, released: ReleasedCapacity) -> int:
        if not released.concerns(query.standing):
            return capacity
        table = query.kind.needs.table
        return capacity + most_gained(released.arrays, released.machines, released.amounts, table)


def _find_free(query: Query, tables: TablesOfClusters, positions: Integers) -> tuple[int, Place]:
    """The position of the best place without evictions, and the place; NO_PLACE, and one without tasks."""
    kind = query.kind
    table, least = kind.needs
    found: _Free = find_free_place(
        tables,
        positions,
        table,
        least,
        query.tasks,
        kind.gpus,
        is_consolidated(query),
        query.affinity.fills,
        kind.tiers,
        least_spread(query),
    )
    position, spread, fragmentation, tasks, entries = found
    return position, Place(tasks, entries, (), spread, fragmentation)


def _find_evicting(
    query: Query, views: Mapping[int, ClusterCapacity] | Sequence[ClusterCapacity], positions: Integers
) -> BestPlace | tuple[int, ...]:
    """The same with evictions where there is no place otherwise; the capacities where there is none with them, too."""
    return _evicting_place(query, views[positions[0]].shared.tables, views, positions)


def _evicting_place(
    query: Query,
    tables: TablesOfClusters,
    views: Mapping[int, ClusterCapacity] | Sequence[ClusterCapacity],
    positions: Integers,
) -> BestPlace | tuple[int, ...]:
    """The same in these tables."""
    rooms = np.zeros(len(positions), np.int64)
    found: _Evicting = find_place_evicting(tables, positions, newcomer_of(query, views[positions[0]].rule), rooms)
    position, on_last_resort, spread, fragmentation, tasks, entries, rows = found
    if position == NO_PLACE:
        return tuple(rooms.tolist())
    victims = views[position].victims_in(rows.tolist()) if len(rows) else ()
    return BestPlace(position, Place(tasks, entries, victims, spread, fragmentation, on_last_resort))


def _best_in_one_unit(
    packing: Packing, query: Query, views: Sequence[ClusterCapacity], positions: Integers
) -> BestPlace | tuple[int, ...]:
    """The best of the places that each of the clusters has."""
    found = [(int(position), packing.find(query, views[position])) for position in positions]
    places = [BestPlace(position, answer) for position, answer in found if isinstance(answer, Place)]
    if places:
        return min(
            places, key=lambda best: (*rank_of(best.place, query.now_s, views[best.position].rule), best.position)
        )
    return tuple([answer.capacity for _, answer in found if isinstance(answer, Shortfall)])


def _find_in_one_unit(query: Query, view: ClusterCapacity) -> Place | Shortfall:
    """The place for a job all of whose tasks must be on one machine or in one rack."""
    if query.affinity.level is AffinityLevel.CLUSTER:
        return NO_CAPACITY  # It must have other cells than these.
    position, place = _find_free(query, view.shared.tables, view.alone)
    if position != NO_PLACE and _is_in_one_unit(query, place):
        return place
    search = UnitSearch(query, view)
    unit = search.free_unit()
    if unit is not None:
        return _find_free(query, tables_of_unit(query, unit, view), ALONE)[1]
    if not query.may_evict:
        return NO_CAPACITY
    unit = search.first_unit_evicting()
    if unit is None:
        return Shortfall(int(search.rooms.max(initial=0)))
    found = _evicting_place(query, tables_of_unit(query, unit, view), {ALONE_THERE: view}, ALONE)
    if not isinstance(found, BestPlace):
        raise LookupError(f"cluster {view.cluster}: no place where there is capacity for {query.tasks} tasks")
    return found.place


def _is_in_one_unit(query: Query, place: Place) -> bool:
    return place.spread < (1 if query.affinity.level is AffinityLevel.MACHINE else RACK_WEIGHT)


def is_consolidated(query: Query) -> bool:
    """Whether the tasks should be close together."""
    return query.affinity.level is not AffinityLevel.CLUSTER


def newcomer_of(query: Query, rule: EvictionRule) -> Newcomer:
    """The query as kernels take it, where evictions are bounded by that rule."""
    kind = query.kind
    return Newcomer(
        query.tasks,
        kind.gpus,
        is_consolidated(query),
        kind.tiers,
        kind.needs,
        query.standing,
        float(query.now_s),  # of whole seconds Numba would make a second version of every kernel
        query.victims_from_priority,
        query.guaranteed,
        query.affinity.fills and kind.gpus > 0,
        rule.spares_work,
        rule.restart_cost_s,
    )
