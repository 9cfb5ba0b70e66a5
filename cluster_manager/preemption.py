"""Kernels that choose whom to evict so that one job finds a place in one cluster (MAST §4.3).

Candidates in a cluster are the live attempts that hold something there on a machine where the job could run, whose
standing is strictly worse than the newcomer's, and that are not being evicted already.

1. They are scanned from the lowest priority and worst level on, the longest-running first, then by id, until what is
   free and what they would release suffices. A job without GPUs seeks room on machines without GPUs first, within each
   priority. Clusters that have not enough when a priority is through lose to any that has (design §4, score).
2. What was scanned is re-sorted: from the best priority down, within a priority the smallest first (in GPUs held in the
   cluster; CPUs on machines without GPUs for a job without), then the last scanned first. In that order each is spared
   if the rest still suffices. So the largest are evicted and the fewest: wanting 10 GPUs, of victims with 4, 5 and 12
   only the 12 is evicted. And nobody is left who could be spared alone.

Feasibility is exact: when a cluster is refused, the job does not fit there even with every candidate gone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cluster_manager.attempts import AttemptArrays, EntryArrays
from cluster_manager.compiled import compiled
from cluster_manager.machines import GPUS, MILLICPUS, RESOURCES, Booleans, FleetArrays, Integers
from cluster_manager.needs import LAST_RESORT, PREFERRED, Needs
from cluster_manager.packing import room_in_cluster, room_on
from cluster_manager.requests import Request
from domain.rank import Standing

BOTH_TIERS = (1 << PREFERRED) | (1 << LAST_RESORT)


class Victims(NamedTuple):
    """Per cluster the room for the job, and the candidates that were scanned. Filled by `scan_candidates`."""

    room: Integers  # [cluster] tasks, with what all its scanned candidates would release
    closed: Booleans  # [cluster] nothing more to scan: it has enough, or can never have
    row: Integers  # [candidate] the attempt
    first: Integers  # [candidate] its entries in one cluster: from here
    end: Integers  # [candidate] up to here
    cluster: Integers  # [candidate]
    released: Integers  # [candidate] bit t: what it holds on machines of tier t is now added to what is free
    size: Integers  # [candidate] scratch


@compiled
def release_in_thought(
    fleet: FleetArrays, needs: Needs, most: int, entries: EntryArrays, first: int, end: int, tiers: int, sign: int
) -> tuple[int, int]:
    """Adds to what is free (sign 1; -1 takes it away) the entries on machines of these tiers. Summaries stay as they are.

    Returns the change in the number of tasks that find room, and how many entries there were.
    """
    change = 0
    touched = 0
    for entry in range(first, end):
        machine = entries.machine[entry]
        tier = needs.tier[fleet.machines.shape[machine]]
        if tier < 0 or not (tiers >> tier) & 1 or not fleet.machines.takes_work[machine]:
            continue
        change -= room_on(fleet, needs, machine, most)
        for resource in range(RESOURCES):
            fleet.machines.free[machine, resource] += sign * entries.amounts[entry, resource]
        change += room_on(fleet, needs, machine, most)
        touched += 1
    return change, touched


@compiled
def open_clusters(
    fleet: FleetArrays,
    needs: Needs,
    request: Request,
    first_cluster: int,
    end_cluster: int,
    rack_room: Integers,
    victims: Victims,
) -> int:
    """Fills in each cluster's room before anybody is evicted; closes those that are too small even when empty.

    Returns the number of clusters left open. A closed one's room is what it would have when empty.
    """
    opened = 0
    victims.closed[:] = True
    victims.room[:] = 0
    for cluster in range(first_cluster, end_cluster):
        empty_room = 0
        for shape in range(len(needs.tier)):
            if needs.tier[shape] >= 0:
                empty_room += fleet.clusters.shape_count[cluster, shape] * needs.whole_room[shape]
        victims.closed[cluster] = empty_room < request.tasks
        victims.room[cluster] = empty_room
        if not victims.closed[cluster]:
            opened += 1
            victims.room[cluster] = room_in_cluster(fleet, needs, cluster, PREFERRED, request.tasks, rack_room)
            if request.gpus == 0:
                victims.room[cluster] += room_in_cluster(fleet, needs, cluster, LAST_RESORT, request.tasks, rack_room)
    return opened


@compiled
def is_worse(attempts: AttemptArrays, row: int, standing: Standing) -> bool:
    """Whether the attempt's standing is strictly worse, so that the newcomer may evict it (I5)."""
    if attempts.priority[row] != standing.priority:
        return bool(attempts.priority[row] > standing.priority)
    return bool(attempts.level[row] > standing.level)


@compiled
def scan_group(
    fleet: FleetArrays,
    needs: Needs,
    request: Request,
    attempts: AttemptArrays,
    entries: EntryArrays,
    first_rank: int,
    end_rank: int,
    tier: int,
    first_of_group: int,
    count: int,
    victims: Victims,
) -> tuple[int, int]:
    """Scans the attempts of one priority for room on machines of one tier, in all open clusters.

    Candidates from `first_of_group` up to `count` are those of an earlier tier of the same priority.
    Returns the new number of candidates and how many clusters now have enough.
    """
    enough = 0
    known = first_of_group
    end_known = count
    for rank in range(first_rank, end_rank):
        row = attempts.order[rank]
        if not attempts.evictable[row]:
            continue
        entry = attempts.first_entry[row]
        while entry < attempts.end_entry[row]:
            end = entries.cluster_end[entry]
            # Segments of the earlier tier were met in the same order, so one pointer finds those met again.
            candidate = count
            if known < end_known and victims.first[known] == entry:
                candidate = known
                known += 1
            cluster = fleet.machines.cluster[entries.machine[entry]]
            if not victims.closed[cluster]:
                change, touched = release_in_thought(fleet, needs, request.tasks, entries, entry, end, 1 << tier, 1)
                if touched > 0:
                    if candidate == count:
                        victims.row[count] = row
                        victims.first[count] = entry
                        victims.end[count] = end
                        victims.cluster[count] = cluster
                        victims.released[count] = 0
                        count += 1
                    victims.released[candidate] |= 1 << tier
                    victims.room[cluster] += change
                    if victims.room[cluster] >= request.tasks:
                        victims.closed[cluster] = True
                        enough += 1
            entry = end
    return count, enough


@compiled
def scan_candidates(
    fleet: FleetArrays,
    needs: Needs,
    tiers: int,
    request: Request,
    standing: Standing,
    attempts: AttemptArrays,
    attempt_count: int,
    entries: EntryArrays,
    opened: int,
    victims: Victims,
) -> tuple[int, int]:
    """Step 1 in all open clusters at once. Returns the number of candidates and of clusters that have enough.

    What the candidates hold stays added to what is free, until `take_back`.
    """
    count = 0
    enough = 0
    rank = 0
    while rank < attempt_count and enough == 0 and opened > 0:
        priority = attempts.priority[attempts.order[rank]]
        end_rank = rank
        while (
            end_rank < attempt_count
            and attempts.priority[attempts.order[end_rank]] == priority
            and is_worse(attempts, attempts.order[end_rank], standing)
        ):
            end_rank += 1
        if end_rank == rank:
            break
        first_of_group = count
        for tier in range(tiers):
            if enough == 0:
                count, enough = scan_group(
                    fleet, needs, request, attempts, entries, rank, end_rank, tier, first_of_group, count, victims
                )
        rank = end_rank
    return count, enough


@compiled
def take_back(
    fleet: FleetArrays, needs: Needs, request: Request, entries: EntryArrays, victims: Victims, candidate: int
) -> int:
    """Ends the release in thought of a candidate; returns the change in room."""
    change, _ = release_in_thought(
        fleet,
        needs,
        request.tasks,
        entries,
        victims.first[candidate],
        victims.end[candidate],
        victims.released[candidate],
        -1,
    )
    victims.released[candidate] = 0
    return change


@compiled
def release_all(
    fleet: FleetArrays, needs: Needs, request: Request, entries: EntryArrays, victims: Victims, candidate: int
) -> int:
    """Releases in thought whatever of the candidate is not released yet; returns the change in room."""
    change, _ = release_in_thought(
        fleet,
        needs,
        request.tasks,
        entries,
        victims.first[candidate],
        victims.end[candidate],
        BOTH_TIERS & ~victims.released[candidate],
        1,
    )
    victims.released[candidate] = BOTH_TIERS
    return change


@compiled
def size_of(
    fleet: FleetArrays, needs: Needs, request: Request, entries: EntryArrays, victims: Victims, candidate: int
) -> int:
    """How large a candidate is in its cluster: GPUs, or thousandths of a CPU on machines without GPUs."""
    resource = GPUS if request.gpus > 0 else MILLICPUS
    size = 0
    for entry in range(victims.first[candidate], victims.end[candidate]):
        machine = entries.machine[entry]
        if needs.tier[fleet.machines.shape[machine]] == PREFERRED and fleet.machines.takes_work[machine]:
            size += entries.amounts[entry, resource]
    return size


@compiled
def spare_needless(
    fleet: FleetArrays,
    needs: Needs,
    request: Request,
    attempts: AttemptArrays,
    entries: EntryArrays,
    cluster: int,
    count: int,
    victims: Victims,
    chosen: Integers,
) -> int:
    """Step 2 in one cluster: writes the candidates to evict into `chosen`, in scan order, and returns their number.

    They stay released in thought, the spared ones no longer.
    """
    number = 0
    for candidate in range(count):
        if victims.cluster[candidate] == cluster:
            victims.room[cluster] += release_all(fleet, needs, request, entries, victims, candidate)
            victims.size[number] = size_of(fleet, needs, request, entries, victims, candidate)
            chosen[number] = candidate
            number += 1
    # Last scanned first, stably sorted by size, then by priority: the order in which they are spared.
    latest_first = np.arange(number - 1, -1, -1)
    by_size = latest_first[np.argsort(victims.size[:number][latest_first], kind="mergesort")]
    priorities = attempts.priority[victims.row[chosen[:number][by_size]]]
    for position in by_size[np.argsort(priorities, kind="mergesort")]:
        candidate = chosen[position]
        change = take_back(fleet, needs, request, entries, victims, candidate)
        if victims.room[cluster] + change < request.tasks:
            change += release_all(fleet, needs, request, entries, victims, candidate)
        victims.room[cluster] += change
    kept = 0
    for position in range(number):
        if victims.released[chosen[position]] != 0:
            chosen[kept] = chosen[position]
            kept += 1
    return kept
