"""Kernels that choose the attempts to evict so that one job finds a place in one cluster (MAST §4.3).

Candidates are the live attempts that hold something in the cluster on a machine where the job could run, that the rule
of `domain.eviction` lets the newcomer evict now, and that are not being evicted already.

1. They are scanned from the lowest priority and worst level on, the longest-running first, then by id, until what is
   free and what they would release suffices. A job without GPUs seeks room on machines without GPUs first, within each
   priority.
2. What was scanned is re-sorted: from the best priority down, within a priority the smallest first (in GPUs held in the
   cluster; CPUs on machines without GPUs for a job without), then the last scanned first. In that order each is spared
   if the rest still suffices. So the largest are evicted and the fewest: wanting 10 GPUs, of victims with 4, 5 and 12
   only the 12 is evicted. And no victim is left that could be spared alone.

That is the published rule. Where work is spared (`domain.eviction.VictimChoice`), the scan ends only behind a whole
(priority, level), and step 2 is that of `least_work`.

Feasibility is exact: when a cluster is refused, the job does not fit there even with every candidate gone.
"""

from __future__ import annotations

from cluster_manager.capacity.attempts import END_ENTRY, EVICTABLE, FIRST_ENTRY, LEVEL, PRIORITY, SPARED, AttemptArrays
from cluster_manager.capacity.charging import charge
from cluster_manager.capacity.fitting import tasks_in_cluster
from cluster_manager.capacity.tables import ClusterArrays, Integers
from cluster_manager.eviction.candidates import release_all, size_of, take_back
from cluster_manager.eviction.least_work import spare_work
from cluster_manager.eviction.supposed_release import RELEASE, suppose_released
from cluster_manager.kernel_scratch import (
    CANDIDATE_END,
    CANDIDATE_FIRST,
    CANDIDATE_ROW,
    RELEASED,
    KernelScratch,
    Newcomer,
)
from cluster_manager.kernels.sorting import put_in_stable_order
from domain.eviction import Evictor, Victim, may_evict
from domain.rank import Standing
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from kernels.compiled import compiled_copy, compiled_part, constant

ZERO = constant(0)


@compiled_part
def room_now(cluster: ClusterArrays, newcomer: Newcomer, space: KernelScratch) -> int:
    """For how many of the newcomer's tasks there is capacity without evictions."""
    room = 0
    for tier in range(newcomer.tiers):
        room += tasks_in_cluster(cluster, newcomer.needs, tier, newcomer.tasks, space.rack_tasks)
    return room


rule_lets_evict = compiled_copy(may_evict)


@compiled_part
def stands_worse(attempts: AttemptArrays, row: int, newcomer: Newcomer) -> bool:
    """Whether the newcomer may evict the attempt once the time for that has come."""
    # As if nothing spared or protected it: what is left of the rule is the comparison of standings.
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
    return bool(evictable and rule_lets_evict(Evictor(newcomer.standing, newcomer.guaranteed), victim, newcomer.now_s))


@compiled_part
def scan_group(
    cluster: ClusterArrays,
    newcomer: Newcomer,
    attempts: AttemptArrays,
    ranks: tuple[int, int],
    tier: int,
    known: tuple[int, int],
    room: int,
    candidates: Integers,
) -> tuple[int, int]:
    """Scans the attempts of these ranks, all of one priority, for capacity on machines of one tier.

    `known` are the first candidate of an earlier tier of the same priority and the number of all candidates.
    Returns the new number of candidates and the new room.
    """
    earlier, count = known
    end_earlier = count
    level = attempts.rows[attempts.order[ranks[0]], LEVEL] if ranks[0] < ranks[1] else 0
    for rank in range(ranks[0], ranks[1]):
        row = attempts.order[rank]
        if newcomer.spares_work and attempts.rows[row, LEVEL] != level:
            level = attempts.rows[row, LEVEL]
            # Among those of one standing all are candidates: which of them leave is chosen afterwards.
            if room >= newcomer.tasks:
                break
        if not is_candidate(attempts, row, newcomer):
            continue
        # Those of the earlier tier were met in the same order, so one pointer finds those met again.
        candidate = count
        if earlier < end_earlier and candidates[earlier, CANDIDATE_ROW] == row:
            candidate = earlier
            earlier += 1
        first, end = attempts.rows[row, FIRST_ENTRY], attempts.rows[row, END_ENTRY]
        change, touched = suppose_released(
            cluster, newcomer.needs, newcomer.tasks, attempts.entries, first, end, 1 << tier, RELEASE
        )
        # Nothing that it holds is on a machine of this tier which the newcomer could use.
        if touched == 0:
            continue
        if candidate == count:
            candidates[count, CANDIDATE_ROW] = row
            candidates[count, CANDIDATE_FIRST] = first
            candidates[count, CANDIDATE_END] = end
            candidates[count, RELEASED] = 0
            count += 1
        candidates[candidate, RELEASED] |= 1 << tier
        room += change
        # The scan goes through attempts in the order in which they should go: those further on should rather stay.
        if room >= newcomer.tasks and not newcomer.spares_work:
            break
    return count, room


@compiled_part
def put_in_order_of_sparing(
    cluster: ClusterArrays, newcomer: Newcomer, attempts: AttemptArrays, count: int, space: KernelScratch
) -> None:
    """Fills `spare` with candidates: the best priority first, then the smallest, then the last scanned."""
    candidates = space.candidates
    for index in range(count):
        space.key[index] = size_of(cluster, newcomer, attempts.entries, candidates, count - 1 - index)
    put_in_stable_order(space.key, count, space.order, space.spare)
    # Sorted by size now; a stable sort of that by priority follows. Only seven priorities: one pass for each.
    filled = 0
    for priority in range(HIGHEST_PRIORITY, LOWEST_PRIORITY + 1):
        for index in range(count):
            candidate = count - 1 - space.order[index]
            if attempts.rows[candidates[candidate, CANDIDATE_ROW], PRIORITY] == priority:
                space.spare[filled] = candidate
                filled += 1


@compiled_part
def spare_needless(
    cluster: ClusterArrays, newcomer: Newcomer, attempts: AttemptArrays, count: int, room: int, space: KernelScratch
) -> int:
    """Step 2: fills `victims` with the candidates to evict, in scan order; returns their number.

    They stay supposed to be released, the spared do not.
    """
    entries = attempts.entries
    candidates = space.candidates
    # An eviction takes an attempt away as a whole, also where the scan looked at one tier only.
    for candidate in range(count):
        room += release_all(cluster, newcomer, entries, candidates, candidate)
    put_in_order_of_sparing(cluster, newcomer, attempts, count, space)
    for index in range(count):
        candidate = space.spare[index]
        # Room is no sum over attempts (two may free one machine together), so each is tried, not computed.
        change = take_back(cluster, newcomer, entries, candidates, candidate)
        if room + change < newcomer.tasks:
            change += release_all(cluster, newcomer, entries, candidates, candidate)
        room += change
    kept = ZERO
    for candidate in range(count):
        if candidates[candidate, RELEASED] != 0:
            space.victims[kept] = candidate
            kept += 1
    return kept


@compiled_part
def take_back_all(
    cluster: ClusterArrays, newcomer: Newcomer, attempts: AttemptArrays, count: int, space: KernelScratch
) -> None:
    """Ends the supposed release of all candidates."""
    for candidate in range(count):
        take_back(cluster, newcomer, attempts.entries, space.candidates, candidate)


@compiled_part
def choose_victims(
    cluster: ClusterArrays,
    newcomer: Newcomer,
    attempts: AttemptArrays,
    scanned: int,
    room: int,
    space: KernelScratch,
    steps: int,
) -> int:
    """Step 2, given the candidates and the room with all that they hold, which suffices; `steps` bound a search for less work.

    Fills `victims` and returns their number. Nothing is supposed to be released any more.
    """
    if newcomer.spares_work:
        victims = spare_work(cluster, newcomer, attempts, scanned, room, space, steps)
    else:
        victims = spare_needless(cluster, newcomer, attempts, scanned, room, space)
    take_back_all(cluster, newcomer, attempts, scanned, space)
    return victims


@compiled_part
def charge_victims(
    cluster: ClusterArrays, attempts: AttemptArrays, victims: int, sign: int, space: KernelScratch
) -> None:
    """Charges (sign 1) or gives back (-1) what the victims hold, summaries included."""
    for position in range(victims):
        candidate = space.victims[position]
        first, end = space.candidates[candidate, CANDIDATE_FIRST], space.candidates[candidate, CANDIDATE_END]
        charge(cluster, attempts.entries, first, end, sign)
