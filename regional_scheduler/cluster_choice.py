"""Which cluster of the region a job goes to: the mechanisms of all clusters are asked, and the best place is kept.

Rule: first without evictions, then with; the best place is the one of the best rank (`cluster_manager.place_rank`), and
of equal ranks the one in the first cluster of the fleet file. Clusters that have the same mechanism are asked in one
call, if it offers that.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.tables import Integers
from cluster_manager.gpu_bits import indices_of
from cluster_manager.mechanism import BestPlace, Place, Query, Shortfall
from cluster_manager.place_rank import BEST_PRIORITY, least_spread, rank_of
from domain.placement import TaskPlacement
from domain.tenant import LOWEST_PRIORITY
from domain.workload import JobSpecification
from regional_scheduler.region_capacity import RegionCapacity

_placement = partial(tuple.__new__, TaskPlacement)
_NOWHERE: Integers = np.zeros(0, np.int64)


class FoundPlace(NamedTuple):
    """The best place in the region."""

    position: int
    """Of the cluster in the region."""
    place: Place
    load: float
    """Share of the region's GPUs (CPUs, for a job without) in use before the job is placed."""


def find_best_place(
    region: RegionCapacity, query: Query, within: int | None = None, *, evicting: bool = False
) -> FoundPlace | tuple[int, ...]:
    """The best place, in the cluster `within` or anywhere; where there is no free one, and if `evicting`, with victims.

    Else, per cluster, for how many tasks there is capacity at most, with all evicted that may be; empty where evictions
    were not asked for.
    """
    counts = region.free_counts(query.kind) if within is None else None
    positions = (
        _clusters_with_capacity(region, counts, query.tasks) if within is None else region.clusters[within].alone
    )
    found = _best_of(region, query, positions)
    if isinstance(found, BestPlace):
        return FoundPlace(found.position, found.place, region.share_in_use(of_gpus=query.kind.gpus > 0))
    if not evicting:
        return ()
    if counts is not None and not region.supposing_clusters and region.is_short(counts, query, query.standing):
        # Nothing is supposed, so the counts are exact; and there is no attempt to evict.
        return tuple(region.counts_with_releases(counts, query).tolist())
    most = region.most_when_empty(query.kind, query.tasks)
    if within is None:
        positions = _with_enough(region, most, query.tasks)
    found = _best_of(region, query._replace(may_evict=True), positions)
    if isinstance(found, BestPlace):
        return FoundPlace(found.position, found.place, region.share_in_use(of_gpus=query.kind.gpus > 0))
    most = most.copy()
    most[positions] = found
    return tuple(most.tolist())


def _clusters_with_capacity(region: RegionCapacity, counts: Integers | None, tasks: int) -> Integers:
    """The positions of the clusters that may have a place without evictions, by the `free_counts` of the region."""
    if counts is None:
        return region.positions
    supposing = region.supposing_clusters
    if not supposing:
        return _with_enough(region, counts, tasks)
    may_have = counts >= tasks
    for cluster in supposing:
        # What is supposed is not counted.
        may_have[cluster.position] = True
    return may_have.nonzero()[0]


def _with_enough(region: RegionCapacity, counts: Integers, tasks: int) -> Integers:
    """The positions of the clusters that have capacity for so many tasks."""
    if len(counts) == 1:
        return region.positions if counts.item() >= tasks else _NOWHERE
    return (counts >= tasks).nonzero()[0]


def _best_of(region: RegionCapacity, query: Query, positions: Integers) -> BestPlace | tuple[int, ...]:
    """The best place in these clusters, else for each the capacity of its shortfall."""
    if len(positions) == 0:
        return ()
    if len(positions) == 1:
        position: int = positions.item()
        answer = region.ask(position, query)
        return (answer.capacity,) if isinstance(answer, Shortfall) else BestPlace(position, answer)
    if region.is_one_group(positions):
        return region.ask_several(query, positions)
    return _best_of_groups(region, query, positions)


def _best_of_groups(region: RegionCapacity, query: Query, positions: Integers) -> BestPlace | tuple[int, ...]:
    """The same where not all of the clusters can be asked in one call: group by group."""
    best: BestPlace | None = None
    best_rank: tuple[float, ...] = ()
    capacities = np.zeros(len(region.clusters), np.int64)
    for group in region.groups:
        if best is not None and best.position < group[0] and _is_perfect(best.place, query):
            break
        here = positions[np.isin(positions, group)]
        found = _best_of(region, query, here)
        if not isinstance(found, BestPlace):
            capacities[here] = found
            continue
        rank = (*rank_of(found.place, query.now_s, region.rule), found.position)
        if best is None or rank < best_rank:
            best, best_rank = found, rank
            # A cluster that needs victims of a better priority loses to this one, so it need not be searched further.
            query = query._replace(victims_from_priority=min(-int(rank[BEST_PRIORITY]), LOWEST_PRIORITY))
    return best if best is not None else tuple(capacities[positions].tolist())


def _is_perfect(place: Place, query: Query) -> bool:
    """Whether no place can be better."""
    return not place.victims and place.spread <= least_spread(query) and place.fragmentation <= 0.0


def placements_of(
    region: RegionCapacity, job: JobSpecification, found: FoundPlace, first_task: int = 0
) -> list[TaskPlacement]:
    """The job's tasks in a place, numbered in machine order from the first one on."""
    layout = region.clusters[found.position].layout
    name, cluster, machine_ids = job.name, layout.cluster, layout.machine_ids
    return [
        _placement((name, task, cluster, machine_ids[machine], indices_of(gpu_bits), millicpus, mebibytes))
        for task, (machine, millicpus, mebibytes, gpu_bits) in enumerate(found.place.tasks.tolist(), first_task)
    ]
