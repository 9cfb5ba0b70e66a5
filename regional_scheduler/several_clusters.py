"""How a job that may be split is cut into parts, one for each of several clusters (beyond MAST §4.6, which keeps it to one).

Rule: as few clusters as possible without evictions: the one with capacity for the most tasks first, until one of the others
has the best place for all that remain. With evictions: first all that is free in any cluster is used; what remains goes to
the cluster where its victims make the best rank, or, where none can take all of it, to the one that can take the most.
Ties go to the first in the fleet file.

Invariant: parts are found whenever the clusters that pack have capacity for all tasks together, with all evicted that may
be: tasks of a job are alike, and clusters do not stand in each other's way.

Ignores: clusters divided into cells, or with mechanisms of packages. What they count is no promise for a smaller number of
tasks, and a virtual cluster's guarantee holds in one cluster.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.free_counts import count_all
from cluster_manager.mechanism import Place, Query, Shortfall
from cluster_manager.place_rank import rank_of
from regional_scheduler.cluster_choice import FoundPlace, find_best_place
from regional_scheduler.region_capacity import RegionCapacity

CLUSTER_WEIGHT = 1_000_000_000_000
"""Of a cluster beyond the first in the spread: more than any number of racks, so that clusters count first."""


class Part(NamedTuple):
    """So many tasks of a job go to the cluster at this position."""

    position: int
    tasks: int


def free_parts(region: RegionCapacity, query: Query) -> list[Part]:
    """The parts that fit without evictions, the largest first; empty: they do not, or the query may not be split."""
    if not query.across_clusters:
        return []
    free = _free_tasks(region, query)
    if sum(free.values()) < query.tasks:
        return []
    parts: list[Part] = []
    left = query.tasks
    while left > 0:
        if parts and max(free.values()) >= left:
            part = Part(_best_for_rest(region, query._replace(tasks=left), free), left)
        else:
            position = max(free, key=lambda position: (free[position], -position))
            part = Part(position, min(free[position], left))
        parts.append(part)
        left -= part.tasks
        del free[part.position]
    return parts


def parts_with_victims(region: RegionCapacity, query: Query) -> list[Part] | tuple[int, ...]:
    """The parts that fit with evictions, the largest first. Else, per cluster that packs, in fleet order, for how many tasks
    there is capacity at most, with all evicted that may be."""
    most = {position: _most_tasks(region, query, position) for position in region.packing.tolist()}
    if sum(most.values()) < query.tasks:
        return tuple(most.values())
    parts = {position: min(tasks, most[position]) for position, tasks in _free_tasks(region, query).items()}
    missing = query.tasks - sum(parts.values())
    more = {position: most[position] - tasks for position, tasks in parts.items() if most[position] > tasks}
    while missing > 0:
        position = _dearest_last(region, query, parts, more, missing)
        taken = min(more.pop(position), missing)
        parts[position] += taken
        missing -= taken
    found = [Part(position, tasks) for position, tasks in parts.items() if tasks]
    return sorted(found, key=lambda part: (-part.tasks, part.position))


def _free_tasks(region: RegionCapacity, query: Query) -> dict[int, int]:
    """By position, for how many tasks there is capacity now, with all that is supposed."""
    table = query.kind.needs.table
    return {
        position: min(count_all(region.clusters[position].arrays, table), query.tasks)
        for position in region.packing.tolist()
    }


def _best_for_rest(region: RegionCapacity, query: Query, free: dict[int, int]) -> int:
    """Where the place for these tasks is the best."""
    ranked: list[tuple[tuple[float, ...], int]] = []
    for position in [position for position, tasks in free.items() if tasks >= query.tasks]:
        found = find_best_place(region, query, position)
        if isinstance(found, FoundPlace):
            ranked.append((rank_of(found.place, query.now_s, region.rule), position))
    return min(ranked)[1]


def _most_tasks(region: RegionCapacity, query: Query, position: int) -> int:
    """For how many tasks there is capacity in the cluster, with all evicted that may be."""
    answer = region.ask(position, query._replace(may_evict=True))
    return min(answer.capacity, query.tasks) if isinstance(answer, Shortfall) else query.tasks


def _dearest_last(
    region: RegionCapacity, query: Query, parts: dict[int, int], more: dict[int, int], missing: int
) -> int:
    """Where to evict for the tasks that are missing, beside those that each cluster has capacity for."""
    ranked: list[tuple[tuple[float, ...], int]] = []
    for position in [position for position, tasks in more.items() if tasks >= missing]:
        answer = region.ask(position, query._replace(tasks=parts[position] + missing, may_evict=True))
        if isinstance(answer, Place):
            ranked.append((rank_of(answer, query.now_s, region.rule), position))
    if ranked:
        return min(ranked)[1]
    return max(more, key=lambda position: (more[position], -position))


def room_of(region: RegionCapacity, found: tuple[int, ...], of_packing: tuple[int, ...]) -> tuple[int, ...]:
    """Per cluster, for how many tasks of a job that may be split there is capacity: what was found of it in one cluster, and of
    the clusters that pack."""
    room = np.array(found, np.int64)
    room[region.packing] = of_packing
    return tuple(room.tolist())
