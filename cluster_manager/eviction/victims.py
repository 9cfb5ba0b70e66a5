"""Kernels that choose whom to evict so that one job finds a place in one cluster (MAST §4.3).

Candidates in a cluster are the live attempts that hold something there on a machine where the job could run, that the
rule of `domain.eviction` lets the newcomer evict now, and that are not being evicted already.

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

from cluster_manager.capacity.attempts import (
    END_ENTRY,
    EVICTABLE,
    FIRST_ENTRY,
    LEVEL,
    PRIORITY,
    SPARED,
    AttemptArrays,
)
from cluster_manager.capacity.charging import CLUSTER_END, FIRST, MACHINE
from cluster_manager.capacity.machines import (
    CLUSTER,
    GPUS,
    MILLICPUS,
    NO_WORK,
    RESOURCES,
    WORKS_AS,
    FleetArrays,
    Integers,
)
from cluster_manager.capacity.needs import LAST_RESORT, PREFERRED, UNFIT, Needs
from cluster_manager.kernel_scratch import (
    CANDIDATE_CLUSTER,
    CANDIDATE_END,
    CANDIDATE_FIRST,
    CANDIDATE_ROW,
    CLOSED,
    RELEASED,
    ROOM,
    KernelScratch,
    Newcomer,
)
from cluster_manager.kernels.compiled import compiled_copy, compiled_part, constant
from cluster_manager.kernels.sorting import put_in_stable_order
from cluster_manager.packing.best_fit import room_in_cluster, room_on
from domain.eviction import Newcomer as Evictor
from domain.eviction import Victim, may_evict
from domain.rank import Standing
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY

BOTH_TIERS = constant(1 << PREFERRED | 1 << LAST_RESORT)
RELEASE = constant(1)
TAKE_BACK = constant(-1)


@compiled_part
def release_in_thought(
    fleet: FleetArrays, needs: Needs, most: int, entries: Integers, first: int, end: int, tiers: int, sign: int
) -> tuple[int, int]:
    """Adds to what is free (sign 1; -1 takes it away) the entries on machines of these tiers. Summaries stay as they are.

    Returns the change in the number of tasks that find room, and how many entries there were.
    """
    change = 0
    touched = 0
    for entry in range(first, end):
        machine = entries[entry, MACHINE]
        shape = fleet.state[machine, WORKS_AS]
        if shape == NO_WORK or needs.tier[shape] == UNFIT or not (tiers >> needs.tier[shape]) & 1:
            continue
        touched += 1
        if sign > 0:
            for resource in range(RESOURCES):
                fleet.state[machine, resource] += entries[entry, resource]
        room_with = room_on(fleet, needs, machine, most)
        for resource in range(RESOURCES):
            fleet.state[machine, resource] -= entries[entry, resource]
        # Where there is no room with the release, there was none without.
        if room_with > 0:
            change += sign * (room_with - room_on(fleet, needs, machine, most))
        if sign > 0:
            for resource in range(RESOURCES):
                fleet.state[machine, resource] += entries[entry, resource]
    return change, touched


@compiled_part
def open_clusters(
    fleet: FleetArrays, newcomer: Newcomer, first_cluster: int, end_cluster: int, space: KernelScratch
) -> None:
    """Fills in the table of clusters before anybody is evicted.

    Closed are those outside [first, end), and those too small even when empty: their room is what that would be.
    """
    needs = newcomer.needs
    tasks = newcomer.request.tasks
    for cluster in range(len(space.clusters)):
        space.clusters[cluster, ROOM] = 0
        space.clusters[cluster, CLOSED] = 1
    for cluster in range(first_cluster, end_cluster):
        empty_room = 0
        for shape in range(len(needs.tier)):
            empty_room += fleet.shape_count[cluster, shape] * needs.whole_room[shape]
        space.clusters[cluster, ROOM] = empty_room
        if empty_room >= tasks:
            space.clusters[cluster, CLOSED] = 0
            space.clusters[cluster, ROOM] = 0
            for tier in range(newcomer.tiers):
                room = room_in_cluster(fleet, needs, cluster, tier, tasks, space.rack_room)
                space.clusters[cluster, ROOM] += room


rule_lets_evict = compiled_copy(may_evict)


@compiled_part
def stands_worse(attempts: AttemptArrays, row: int, newcomer: Newcomer) -> bool:
    """Whether the newcomer may evict the attempt once the time for that has come."""
    victim = Victim(Standing(attempts.rows[row, PRIORITY], attempts.rows[row, LEVEL]), False, newcomer.now_s)
    return bool(rule_lets_evict(Evictor(newcomer.standing, True), victim, newcomer.now_s))


@compiled_part
def is_candidate(attempts: AttemptArrays, row: int, newcomer: Newcomer) -> bool:
    """Whether the newcomer may evict the attempt now."""
    victim = Victim(
        Standing(attempts.rows[row, PRIORITY], attempts.rows[row, LEVEL]),
        attempts.rows[row, SPARED] != 0,
        attempts.evictable_from_s[row],
    )
    evictable = attempts.rows[row, EVICTABLE] != 0
    return bool(evictable and rule_lets_evict(Evictor(newcomer.standing, True), victim, newcomer.now_s))


@compiled_part
def scan_group(
    fleet: FleetArrays,
    newcomer: Newcomer,
    attempts: AttemptArrays,
    first_rank: int,
    end_rank: int,
    tier: int,
    first_of_group: int,
    count: int,
    space: KernelScratch,
) -> tuple[int, int]:
    """Scans the attempts of one priority for room on machines of one tier, in all open clusters.

    Candidates from `first_of_group` up to `count` are those of an earlier tier of the same priority.
    Returns the new number of candidates and how many clusters now have enough.
    """
    tasks = newcomer.request.tasks
    entries = attempts.entries
    clusters = space.clusters
    candidates = space.candidates
    enough = 0
    known = first_of_group
    end_known = count
    for rank in range(first_rank, end_rank):
        row = attempts.order[rank]
        if not is_candidate(attempts, row, newcomer):
            continue
        entry = attempts.rows[row, FIRST_ENTRY]
        while entry < attempts.rows[row, END_ENTRY]:
            end = entries[entry, CLUSTER_END]
            # Those of the earlier tier were met in the same order, so one pointer finds those met again.
            candidate = count
            if known < end_known and candidates[known, CANDIDATE_FIRST] == entry:
                candidate = known
                known += 1
            cluster = fleet.fixed[entries[entry, MACHINE], CLUSTER]
            if not clusters[cluster, CLOSED]:
                change, touched = release_in_thought(
                    fleet, newcomer.needs, tasks, entries, entry, end, 1 << tier, RELEASE
                )
                if touched > 0:
                    if candidate == count:
                        candidates[count, CANDIDATE_ROW] = row
                        candidates[count, CANDIDATE_FIRST] = entry
                        candidates[count, CANDIDATE_END] = end
                        candidates[count, CANDIDATE_CLUSTER] = cluster
                        candidates[count, RELEASED] = 0
                        count += 1
                    candidates[candidate, RELEASED] |= 1 << tier
                    clusters[cluster, ROOM] += change
                    if clusters[cluster, ROOM] >= tasks:
                        clusters[cluster, CLOSED] = 1
                        enough += 1
            entry = end
    return count, enough


@compiled_part
def any_open(space: KernelScratch) -> bool:
    """Whether a cluster is left to scan."""
    closed = 0
    for cluster in range(len(space.clusters)):
        closed += space.clusters[cluster, CLOSED]
    return bool(closed < len(space.clusters))


@compiled_part
def scan_candidates(
    fleet: FleetArrays, newcomer: Newcomer, attempts: AttemptArrays, space: KernelScratch
) -> tuple[int, int]:
    """Step 1 in all open clusters at once. Returns the number of candidates and of clusters that have enough.

    What the candidates hold stays added to what is free, until `take_back`.
    """
    count = FIRST
    enough = FIRST
    rank = FIRST
    while rank < attempts.live and enough == 0 and any_open(space):
        priority = attempts.rows[attempts.order[rank], PRIORITY]
        end_rank = rank
        while (
            end_rank < attempts.live
            and attempts.rows[attempts.order[end_rank], PRIORITY] == priority
            and stands_worse(attempts, attempts.order[end_rank], newcomer)
        ):
            end_rank += 1
        if end_rank == rank:
            break
        first_of_group = count
        for tier in range(newcomer.tiers):
            if enough == 0:
                count, enough = scan_group(
                    fleet, newcomer, attempts, rank, end_rank, tier, first_of_group, count, space
                )
        rank = end_rank
    return count, enough


@compiled_part
def take_back(fleet: FleetArrays, newcomer: Newcomer, entries: Integers, candidates: Integers, candidate: int) -> int:
    """Ends the release in thought of a candidate; returns the change in room."""
    change, _ = release_in_thought(
        fleet,
        newcomer.needs,
        newcomer.request.tasks,
        entries,
        candidates[candidate, CANDIDATE_FIRST],
        candidates[candidate, CANDIDATE_END],
        candidates[candidate, RELEASED],
        TAKE_BACK,
    )
    candidates[candidate, RELEASED] = 0
    return change


@compiled_part
def release_all(fleet: FleetArrays, newcomer: Newcomer, entries: Integers, candidates: Integers, candidate: int) -> int:
    """Releases in thought whatever of the candidate is not released yet; returns the change in room."""
    change, _ = release_in_thought(
        fleet,
        newcomer.needs,
        newcomer.request.tasks,
        entries,
        candidates[candidate, CANDIDATE_FIRST],
        candidates[candidate, CANDIDATE_END],
        BOTH_TIERS & ~candidates[candidate, RELEASED],
        RELEASE,
    )
    candidates[candidate, RELEASED] = BOTH_TIERS
    return change


@compiled_part
def size_of(fleet: FleetArrays, newcomer: Newcomer, entries: Integers, candidates: Integers, candidate: int) -> int:
    """How large a candidate is in its cluster: GPUs, or thousandths of a CPU on machines without GPUs."""
    resource = GPUS if newcomer.request.gpus > 0 else MILLICPUS
    size = 0
    for entry in range(candidates[candidate, CANDIDATE_FIRST], candidates[candidate, CANDIDATE_END]):
        shape = fleet.state[entries[entry, MACHINE], WORKS_AS]
        if shape != NO_WORK and newcomer.needs.tier[shape] == PREFERRED:
            size += entries[entry, resource]
    return size


@compiled_part
def put_in_order_of_sparing(
    fleet: FleetArrays, newcomer: Newcomer, attempts: AttemptArrays, count: int, space: KernelScratch
) -> None:
    """Fills `spare` with positions in `mine`: the best priority first, then the smallest, then the last scanned."""
    candidates = space.candidates
    for index in range(count):
        candidate = space.mine[count - 1 - index]
        space.key[index] = size_of(fleet, newcomer, attempts.entries, candidates, candidate)
    put_in_stable_order(space.key, count, space.order, space.spare)
    # Sorted by size now; a stable sort of that by priority follows. Only seven priorities: one walk for each.
    filled = 0
    for priority in range(HIGHEST_PRIORITY, LOWEST_PRIORITY + 1):
        for index in range(count):
            position = count - 1 - space.order[index]
            if attempts.rows[candidates[space.mine[position], CANDIDATE_ROW], PRIORITY] == priority:
                space.spare[filled] = position
                filled += 1


@compiled_part
def spare_needless(
    fleet: FleetArrays, newcomer: Newcomer, attempts: AttemptArrays, cluster: int, count: int, space: KernelScratch
) -> int:
    """Step 2 in one cluster: fills `mine` with the candidates to evict, in scan order; returns their number.

    They stay released in thought, the spared do not.
    """
    entries = attempts.entries
    candidates = space.candidates
    room = space.clusters[cluster, ROOM]
    number = FIRST
    for candidate in range(count):
        if candidates[candidate, CANDIDATE_CLUSTER] == cluster:
            room += release_all(fleet, newcomer, entries, candidates, candidate)
            space.mine[number] = candidate
            number += 1
    put_in_order_of_sparing(fleet, newcomer, attempts, number, space)
    for index in range(number):
        candidate = space.mine[space.spare[index]]
        change = take_back(fleet, newcomer, entries, candidates, candidate)
        if room + change < newcomer.request.tasks:
            change += release_all(fleet, newcomer, entries, candidates, candidate)
        room += change
    kept = 0
    for position in range(number):
        candidate = space.mine[position]
        if candidates[candidate, RELEASED] != 0:
            space.mine[kept] = candidate
            kept += 1
    return kept
