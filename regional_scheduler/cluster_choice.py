"""Which cluster of the region a job goes to: every cluster's mechanism is asked, and the best place is kept.

Rule: first without evictions, then with. The parts of the score that differ between the clusters of a region, in the
order of importance (design §4): evicted workloads by priority from 0 on, minus the seconds they have been running,
spread, fragmentation. Ties go to the first cluster of the fleet file. Of clusters whose best-priority victims have the
same priority, one that need not look at machines of last resort wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cluster_manager.gpu_bits import indices_of
from cluster_manager.mechanism import AffinityLevel, Place, Query, Shortfall
from domain.placement import Holding, TaskPlacement
from domain.tenant import LOWEST_PRIORITY
from domain.workload import JobSpecification
from regional_scheduler.region_capacity import RegionCapacity

_EvictingRank: TypeAlias = tuple[int, bool, tuple[int, ...], float, int, float]


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """The best place in the region."""

    position: int
    """Of the cluster in the region."""
    place: Place
    load: float
    """Share of the region's GPUs (CPUs, for a job without) in use before the job is placed."""


def find_best_place(region: RegionCapacity, query: Query, within: int | None = None) -> FoundPlace | tuple[int, ...]:
    """The best place, in one cluster or anywhere.

    Else, per cluster, for how many tasks there is capacity at most, with all evicted that may be; empty where evictions
    were not asked for.
    """
    load = region.share_in_use(of_gpus=query.kind.gpus > 0)
    positions = _clusters_with_capacity(region, query) if within is None else [within]
    best = _find_free(region, query._replace(may_evict=False), positions)
    if best is None and query.may_evict:
        best, capacities = _find_evicting(region, query)
        if best is None:
            return capacities
    return FoundPlace(*best, load) if best is not None else ()


def _clusters_with_capacity(region: RegionCapacity, query: Query) -> Sequence[int]:
    """The clusters that may have a place without evictions."""
    counts = region.free_counts(query.kind)
    if counts is None:
        return range(len(region.clusters))
    if region.supposed:
        # What is supposed is not counted.
        clusters = enumerate(region.clusters)
        return [position for position, cluster in clusters if counts[position] >= query.tasks or cluster.supposes]
    if len(counts) == 1:
        return (0,) if counts[0] >= query.tasks else ()
    positions: list[int] = np.flatnonzero(counts >= query.tasks).tolist()
    return positions


def _find_free(region: RegionCapacity, query: Query, positions: Sequence[int]) -> tuple[int, Place] | None:
    best: tuple[int, Place] | None = None
    least_spread = _least_spread(query)
    for position in positions:
        place = region.ask(position, query)
        if isinstance(place, Shortfall):
            continue
        if best is None or (place.spread, place.fragmentation) < (best[1].spread, best[1].fragmentation):
            best = position, place
            if place.spread <= least_spread and place.fragmentation <= 0.0:
                break
    return best


def _find_evicting(region: RegionCapacity, query: Query) -> tuple[tuple[int, Place] | None, tuple[int, ...]]:
    """The best place, and what each cluster has capacity for at most, which means something where there is no place."""
    best: tuple[int, Place] | None = None
    best_rank: _EvictingRank | None = None
    capacities = region.when_empty(query.kind, query.tasks)
    for position in range(len(capacities)):
        if capacities[position] < query.tasks:
            continue
        answer = region.ask(position, query)
        if isinstance(answer, Shortfall):
            capacities[position] = answer.capacity
            continue
        rank = _evicting_rank(answer, query.now_s)
        if best_rank is None or rank < best_rank:
            best, best_rank = (position, answer), rank
            # A cluster that needs victims of a better priority loses to this one, so it need not be searched further.
            query = query._replace(victims_from_priority=min(-rank[0], LOWEST_PRIORITY))
    return best, tuple(capacities)


def placements_of(region: RegionCapacity, job: JobSpecification, found: FoundPlace) -> list[TaskPlacement]:
    """The job's tasks in a place, numbered in machine order."""
    layout = region.clusters[found.position].layout
    machine_ids, cluster, name = layout.machine_ids, layout.cluster, job.name
    return [
        TaskPlacement(name, task, cluster, machine_ids[machine], indices_of(gpu_bits), millicpus, mebibytes)
        for task, (machine, millicpus, mebibytes, gpu_bits) in enumerate(found.place.tasks.tolist())
    ]


def running_s(victims: Sequence[Holding], now_s: float) -> float:
    """Minus the seconds that the victims have been running."""
    return 0.0 - sum([max(now_s - victim.started_s, 0.0) for victim in victims])


def by_priority(victims: Sequence[Holding]) -> tuple[int, ...]:
    """The victims counted by priority."""
    counts = [0] * (LOWEST_PRIORITY + 1)
    for victim in victims:
        counts[victim.standing.priority] += 1
    return tuple(counts)


def _evicting_rank(place: Place, now_s: float) -> _EvictingRank:
    """The smallest is the best place."""
    victims = place.victims
    best_priority = min([victim.standing.priority for victim in victims], default=LOWEST_PRIORITY + 1)
    return (
        -best_priority,
        place.last_resort,
        by_priority(victims),
        running_s(victims, now_s),
        place.spread,
        place.fragmentation,
    )


def _least_spread(query: Query) -> int:
    """No place has less: one rack, and as few machines as the largest ones would do when empty."""
    if query.affinity.level is AffinityLevel.CLUSTER:
        return 0
    most = query.kind.most_on_one
    return (query.tasks + most - 1) // most - 1
