"""Room for several jobs at once, found exactly: in what is free, or in what attempts leave that may be evicted.

Rule: which machines the jobs go to says `exact_places`. With evictions that is asked as if all attempts were gone that may
go; then those stay, the last in the order of eviction first (the dearest of a standing, where work is spared), that
leave enough on these machines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.attempts import order_key
from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.tables import RESOURCES, SHAPE, Integers
from cluster_manager.mechanism import Query
from cluster_manager.packing.given_machines import place_on_machines
from domain.eviction import EvictionRule, Evictor, Victim, may_evict
from domain.placement import AttemptKey, Holding
from domain.rank import Standing
from regional_scheduler.cluster_choice import FoundPlace
from regional_scheduler.exact_places import ExactPlace, exact_places
from regional_scheduler.region_capacity import RegionCapacity


class RoomForPart(NamedTuple):
    """The place of a job, or of a part of it in one cluster."""

    job: int
    """Which of the jobs."""
    tasks: int
    found: FoundPlace


class ExactRoom(NamedTuple):
    """A place for each of the jobs, and who leaves for them."""

    places: tuple[RoomForPart, ...]
    victims: tuple[AttemptKey, ...]


def free_room(region: RegionCapacity, queries: Sequence[Query]) -> tuple[RoomForPart, ...] | None:
    """A place for each of the jobs in what is free now, or places for its parts, the largest first; None: none was found. The
    region is as before.
    """
    places = exact_places(region, queries)
    return None if places is None else _found(region, queries, places, ())


def room_with_victims(region: RegionCapacity, queries: Sequence[Query]) -> ExactRoom | None:
    """The same where attempts leave that may be evicted for the jobs, which all have the same standing."""
    query = queries[0]
    newcomer = Evictor(query.standing, query.guaranteed)
    evictable = [
        holding
        for holding in region.holdings()
        if may_evict(newcomer, Victim(holding.standing, holding.spared, holding.evictable_from_s), query.now_s)
        and not region.is_leaving(holding.key)
    ]
    if not evictable:
        return None
    with region.supposing():
        for holding in evictable:
            region.suppose_released(holding.key)
        places = exact_places(region, queries)
        left = None if places is None else _left_on_machines(region, queries, places)
    if places is None or left is None:
        return None
    evictable.sort(key=order_key, reverse=True)
    if region.rule.spares_work:
        evictable.sort(key=lambda holding: dearest_first(holding, region.rule, query.now_s))
    victims = _not_spared(region, evictable, left)
    return ExactRoom(_found(region, queries, places, victims), tuple(victims))


def dearest_first(holding: Holding, rule: EvictionRule, now: float) -> tuple[Standing, int]:
    """Sorts by standing, the best first, and those of one standing by the work that their eviction destroys."""
    return holding.standing, -holding.work_destroyed(rule.restart_cost_s, now)


def _left_on_machines(
    region: RegionCapacity, queries: Sequence[Query], places: Sequence[ExactPlace]
) -> dict[tuple[int, int], Integers]:
    """By cluster and machine: what is left on the machines of these places once all jobs are there."""
    left: dict[tuple[int, int], Integers] = {}
    for place in places:
        query = queries[place.job]
        arrays = region.clusters[place.position].arrays
        for machine, tasks in zip(place.machines.tolist(), place.tasks.tolist(), strict=True):
            key = place.position, machine
            if key not in left:
                left[key] = arrays.state[machine, :RESOURCES].copy()
            left[key] -= tasks * query.kind.needs.table[arrays.fixed[machine, SHAPE], :RESOURCES]
    return left


def _not_spared(
    region: RegionCapacity, evictable: Sequence[Holding], left: Mapping[tuple[int, int], Integers]
) -> list[AttemptKey]:
    """Who has to go, given what is left once all are gone: in this order each stays if there is enough."""
    victims: list[AttemptKey] = []
    for holding in evictable:
        held = [
            (left[cluster.position, int(entry[MACHINE])], entry[:RESOURCES])
            for cluster in region.clusters
            if cluster.holding(holding.key) is not None
            for entry in cluster.entries_of(holding.key)
            if (cluster.position, int(entry[MACHINE])) in left
        ]
        if all(np.all(have >= amounts) for have, amounts in held):
            for have, amounts in held:
                np.subtract(have, amounts, out=have)
        else:
            victims.append(holding.key)
    return victims


def _found(
    region: RegionCapacity, queries: Sequence[Query], places: Sequence[ExactPlace], gone: Sequence[AttemptKey]
) -> tuple[RoomForPart, ...]:
    """The places with the GPUs of every task, these attempts being gone."""
    found: list[RoomForPart] = []
    with region.supposing():
        for key in gone:
            region.suppose_released(key)
        for job, position, machines, tasks in places:
            count = int(tasks.sum())
            query = queries[job]._replace(tasks=count)
            place = place_on_machines(region.shared.tables, position, query, machines, tasks)
            at = FoundPlace(position, place, region.share_in_use(of_gpus=query.kind.gpus > 0))
            found.append(RoomForPart(job, count, at))
            region.suppose_charged(position, place.entries)
    return tuple(found)
