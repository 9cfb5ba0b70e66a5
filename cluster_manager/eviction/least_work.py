"""Kernels that choose the victims whose eviction destroys the least work (design I15): step 2 of `victims`, where work is spared.

Of the candidates, the (priority, level)s are gone through from the best on, with all worse candidates gone. For each those
leave, of all choices that suffice, of which the least work is destroyed; then, of equal ones, the fewest.

1. The cheapest that suffices alone is a choice. Whatever is not cheaper is in no better one, and stays.
2. Of the cheaper ones: the dearest are spared as long as the rest suffices; those of the least work per task leave, and of
   them the dearest are spared; and the published order of sparing. The best of these choices is taken.
3. Unless a lower bound says that this is the best there is, all choices are searched, the dearest first, each to stay and
   then to leave. A branch ends where what leaves already, and what the cheapest per task of those to come would add, is
   not better than the best choice so far. The search ends after so many steps; then the best so far counts.

So the choice is the best one wherever the search ends by itself, which it does for a few dozen candidates mostly; and
never worse than that of the published order among the cheaper ones.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster_manager.capacity.attempts import LEVEL, PRIORITY, WEIGHT, AttemptArrays
from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.fitting import tasks_on
from cluster_manager.capacity.tables import NO_WORK, WORKS_AS, ClusterArrays, Integers
from cluster_manager.capacity.task_kinds import TIER, UNFIT
from cluster_manager.eviction.candidates import release_all, size_of, take_back
from cluster_manager.kernel_scratch import (
    CANDIDATE_END,
    CANDIDATE_FIRST,
    CANDIDATE_ROW,
    RELEASED,
    KernelScratch,
    Newcomer,
)
from cluster_manager.kernels.sorting import put_in_stable_order
from domain.work_destroyed import unsaved_s, work_destroyed
from kernels.compiled import compiled_copy, compiled_part, constant

MOST_STEPS = constant(8_192)
"""Of one search for a place, in all clusters together: a step supposes what a candidate holds on one machine gone, or back."""

# What is decided of a candidate in a search.
UNDECIDED = 0
STAYS = 1
LEAVES = 2

ZERO = constant(0)
ONE = constant(1)
NO_COST = constant(2**62)
"""More than any choice costs."""
MOST_LEVELS = 1 << 32

unsaved = compiled_copy(unsaved_s)
destroyed = compiled_copy(work_destroyed)


class Choosing(NamedTuple):
    """Between which candidates is chosen, where."""

    cluster: ClusterArrays
    newcomer: Newcomer
    entries: Integers
    space: KernelScratch
    pooled: int
    """How many are in the pool."""


@compiled_part
def cost_of(attempts: AttemptArrays, row: int, newcomer: Newcomer) -> int:
    """The units of work that evicting the attempt in this row destroys."""
    lost_s = unsaved(attempts.saved_s[row], attempts.checkpoint_interval_s[row], newcomer.now_s)
    return int(destroyed(attempts.rows[row, WEIGHT], lost_s, newcomer.restart_cost_s))


@compiled_part
def put_in_order_of_cost(attempts: AttemptArrays, count: int, space: KernelScratch) -> None:
    """Fills `victims` with all candidates: the best standing first, then the dearest, then the last scanned."""
    for index in range(count):
        space.key[index] = -space.cost[count - 1 - index]
    put_in_stable_order(space.key, count, space.order, space.spare)
    for index in range(count):
        space.pool[index] = count - 1 - space.order[index]
    for index in range(count):
        row = space.candidates[space.pool[index], CANDIDATE_ROW]
        space.key[index] = attempts.rows[row, PRIORITY] * MOST_LEVELS + attempts.rows[row, LEVEL]
    put_in_stable_order(space.key, count, space.order, space.spare)
    for index in range(count):
        space.victims[index] = space.pool[space.order[index]]


@compiled_part
def room_on_machines(choosing: Choosing, candidate: int) -> int:
    """For how many tasks there is capacity on the candidate's machines, on each for as many as the newcomer has at most."""
    cluster, newcomer, candidates = choosing.cluster, choosing.newcomer, choosing.space.candidates
    room = ZERO
    for entry in range(candidates[candidate, CANDIDATE_FIRST], candidates[candidate, CANDIDATE_END]):
        machine = choosing.entries[entry, MACHINE]
        shape = cluster.state[machine, WORKS_AS]
        if shape != NO_WORK and newcomer.needs.table[shape, TIER] != UNFIT:
            room += tasks_on(cluster, newcomer.needs.table, machine, newcomer.tasks)
    return room


@compiled_part
def machines_of(choosing: Choosing, candidate: int) -> int:
    """On how many machines the candidate holds something."""
    candidates = choosing.space.candidates
    return int(candidates[candidate, CANDIDATE_END] - candidates[candidate, CANDIDATE_FIRST])


@compiled_part
def goes(choosing: Choosing, candidate: int) -> int:
    """Supposes the candidate gone; the change in room."""
    return int(release_all(choosing.cluster, choosing.newcomer, choosing.entries, choosing.space.candidates, candidate))


@compiled_part
def comes_back(choosing: Choosing, candidate: int) -> int:
    """Ends that; the change in room."""
    return int(take_back(choosing.cluster, choosing.newcomer, choosing.entries, choosing.space.candidates, candidate))


@compiled_part
def all_go(choosing: Choosing, room: int) -> int:
    """Supposes the whole pool gone; the new room."""
    for place in range(choosing.pooled):
        room += goes(choosing, choosing.space.pool[place])
    return room


@compiled_part
def all_come_back(choosing: Choosing, room: int) -> int:
    """The whole pool is back; the new room."""
    for place in range(choosing.pooled):
        if choosing.space.candidates[choosing.space.pool[place], RELEASED] != 0:
            room += comes_back(choosing, choosing.space.pool[place])
    return room


@compiled_part
def spare_in_order(choosing: Choosing, room: int) -> int:
    """In `order`, spares each of the pool that is supposed gone if the rest still suffices; the new room."""
    space = choosing.space
    for index in range(choosing.pooled):
        candidate = space.pool[space.order[index]]
        if space.candidates[candidate, RELEASED] == 0:
            continue
        change = comes_back(choosing, candidate)
        if room + change < choosing.newcomer.tasks:
            change += goes(choosing, candidate)
        room += change
    return room


@compiled_part
def keep_if_better(choosing: Choosing, best: tuple[int, int]) -> tuple[int, int]:
    """Remembers those of the pool that are supposed gone, if that is better; cost and number of the best choice so far."""
    space = choosing.space
    cost, victims = ZERO, ZERO
    for place in range(choosing.pooled):
        if space.candidates[space.pool[place], RELEASED] != 0:
            cost += space.cost[space.pool[place]]
            victims += 1
    if cost > best[0] or (cost == best[0] and victims >= best[1]):
        return best
    for place in range(choosing.pooled):
        space.best[place] = 1 if space.candidates[space.pool[place], RELEASED] != 0 else 0
    return cost, victims


@compiled_part
def dearest_first(choosing: Choosing) -> None:
    """The pool is in this order."""
    for place in range(choosing.pooled):
        choosing.space.order[place] = place


@compiled_part
def rate_pool(choosing: Choosing) -> None:
    """Fills in the ratios."""
    space = choosing.space
    least = NO_COST
    for place in range(choosing.pooled - 1, -1, -1):
        candidate = space.pool[place]
        space.ratio[candidate] = space.cost[candidate] // space.gain[candidate]
        least = min(least, space.ratio[candidate])
        space.least_ratio_after[place] = least


@compiled_part
def least_possible_cost(choosing: Choosing, room: int) -> int:
    """No choice from the pool costs less: as if parts of candidates could leave. Leaves the pool by ratio in `order`."""
    space = choosing.space
    for place in range(choosing.pooled):
        space.key[place] = space.ratio[space.pool[place]]
    put_in_stable_order(space.key, choosing.pooled, space.order, space.spare)
    missing, bound = choosing.newcomer.tasks - room, ZERO
    for index in range(choosing.pooled):
        candidate = space.pool[space.order[index]]
        if missing <= 0:
            break
        bound += space.ratio[candidate] * min(space.gain[candidate], missing)
        missing -= min(space.gain[candidate], missing)
    return bound


@compiled_part
def search_all(choosing: Choosing, room: int, missing: int, best: tuple[int, int], steps: int) -> tuple[int, int]:
    """Step 3, with the whole pool supposed gone: the cost and the number of the best choice. `missing` tasks have no capacity with all back."""
    space, tasks = choosing.space, choosing.newcomer.tasks
    place, cost, gained = ZERO, ZERO, ZERO
    for one in range(choosing.pooled):
        space.chosen[one] = UNDECIDED
    while place >= 0 and steps > 0:
        more = missing - gained
        hopeless = place == choosing.pooled
        if hopeless:
            best = keep_if_better(choosing, best)
        elif more > 0:
            # Ratios are rounded down: what is better by less than that is not looked for.
            hopeless = cost + more * space.least_ratio_after[place] + tasks >= best[0]
        else:
            hopeless = cost >= best[0]
        if not hopeless:
            candidate = space.pool[place]
            steps -= machines_of(choosing, candidate)
            change = comes_back(choosing, candidate)
            if room + change >= tasks:
                room += change
                space.chosen[place] = STAYS
            else:
                # All that are undecided are gone, and still it must go too.
                room += change + goes(choosing, candidate)
                cost += space.cost[candidate]
                gained += space.gain[candidate]
                space.chosen[place] = LEAVES
            place += 1
            continue
        place -= 1
        while place >= 0 and space.chosen[place] == LEAVES:
            cost -= space.cost[space.pool[place]]
            gained -= space.gain[space.pool[place]]
            space.chosen[place] = UNDECIDED
            place -= 1
        if place >= 0:
            room += goes(choosing, space.pool[place])
            cost += space.cost[space.pool[place]]
            gained += space.gain[space.pool[place]]
            space.chosen[place] = LEAVES
            place += 1
    return best


@compiled_part
def choose_from_pool(choosing: Choosing, room: int, best: tuple[int, int], steps: int) -> tuple[int, int]:
    """Steps 2 and 3, with the whole pool supposed gone, which suffices: the cost and the number of the best choice.

    It is in `best` of the scratch space if it is better than what was given. What is supposed is left as it comes.
    """
    space = choosing.space
    dearest_first(choosing)
    room = spare_in_order(choosing, room)
    best = keep_if_better(choosing, best)
    room = all_come_back(choosing, room)
    back = room
    rate_pool(choosing)
    bound = least_possible_cost(choosing, room)
    if best[1] > 1:
        index = 0
        while room < choosing.newcomer.tasks:
            room += goes(choosing, space.pool[space.order[index]])
            index += 1
        dearest_first(choosing)
        room = spare_in_order(choosing, room)
        best = keep_if_better(choosing, best)
        room = all_go(choosing, room)
        for place in range(choosing.pooled):
            candidate = space.pool[choosing.pooled - 1 - place]
            space.key[place] = size_of(
                choosing.cluster, choosing.newcomer, choosing.entries, space.candidates, candidate
            )
        put_in_stable_order(space.key, choosing.pooled, space.order, space.spare)
        for place in range(choosing.pooled):
            space.order[place] = choosing.pooled - 1 - space.order[place]
        room = spare_in_order(choosing, room)
        best = keep_if_better(choosing, best)
    if best[0] > bound + choosing.newcomer.tasks:
        room = all_go(choosing, room)
        best = search_all(choosing, room, choosing.newcomer.tasks - back, best, steps)
    return best


@compiled_part
def choose_within(choosing: Choosing, first: int, end: int, room: int, steps: int) -> int:
    """Of the candidates at these places of `victims`, which are all of one standing and supposed gone, those stay that may;
    the new room."""
    space, tasks = choosing.space, choosing.newcomer.tasks
    for place in range(first, end):
        space.gain[space.victims[place]] = room_on_machines(choosing, space.victims[place])
    for place in range(first, end):
        room += comes_back(choosing, space.victims[place])
    if room >= tasks:
        return room
    back = room
    for place in range(first, end):
        gain = space.gain[space.victims[place]] - room_on_machines(choosing, space.victims[place])
        space.gain[space.victims[place]] = min(gain, tasks - back)
    alone = end - 1
    while alone >= first:
        if space.gain[space.victims[alone]] >= tasks - back:
            room += goes(choosing, space.victims[alone])
            if room >= tasks:
                break
            room += comes_back(choosing, space.victims[alone])
        alone -= 1
    best = NO_COST, NO_COST
    pooled = ZERO
    for place in range(alone + 1, end):
        # Who gains nothing is in no choice.
        if place >= first and space.gain[space.victims[place]] > 0:
            space.pool[pooled] = space.victims[place]
            space.best[pooled] = 0
            pooled += 1
    if alone >= first:
        # None of the cheaper ones suffices alone.
        if pooled < 2 or (
            space.cost[space.pool[pooled - 1]] + space.cost[space.pool[pooled - 2]] >= space.cost[space.victims[alone]]
        ):
            return room
        room += comes_back(choosing, space.victims[alone])
        best = space.cost[space.victims[alone]], ONE
    pool = Choosing(choosing.cluster, choosing.newcomer, choosing.entries, space, pooled)
    room = all_go(pool, room)
    alone_is_best = alone >= first
    if room >= tasks:
        alone_is_best = choose_from_pool(pool, room, best, steps) == best
    all_come_back(pool, room)
    room = back
    if alone_is_best:
        return room + goes(choosing, space.victims[alone])
    for place in range(pool.pooled):
        if space.best[place] != 0:
            room += goes(pool, space.pool[place])
    return room


@compiled_part
def end_of_standing(attempts: AttemptArrays, count: int, first: int, space: KernelScratch) -> int:
    """The first place of `victims` behind those of the standing that begins here."""
    row = space.candidates[space.victims[first], CANDIDATE_ROW]
    end = first
    while end < count:
        other = space.candidates[space.victims[end], CANDIDATE_ROW]
        if (
            attempts.rows[other, PRIORITY] != attempts.rows[row, PRIORITY]
            or attempts.rows[other, LEVEL] != attempts.rows[row, LEVEL]
        ):
            break
        end += 1
    return end


@compiled_part
def spare_work(
    cluster: ClusterArrays,
    newcomer: Newcomer,
    attempts: AttemptArrays,
    count: int,
    room: int,
    space: KernelScratch,
    steps: int,
) -> int:
    """Fills `victims` with the candidates to evict, in scan order; returns their number.

    They stay supposed to be released, the spared do not.
    """
    choosing = Choosing(cluster, newcomer, attempts.entries, space, ZERO)
    for candidate in range(count):
        # An eviction takes an attempt away as a whole, also where the scan looked at one tier only.
        room += goes(choosing, candidate)
        space.cost[candidate] = cost_of(attempts, space.candidates[candidate, CANDIDATE_ROW], newcomer)
    put_in_order_of_cost(attempts, count, space)
    first = ZERO
    while first < count:
        end = end_of_standing(attempts, count, first, space)
        room = choose_within(choosing, first, end, room, steps)
        first = end
    # Nobody leaves who could stay alone, where the search for the best choice had to end early.
    for place in range(count):
        candidate = space.victims[place]
        if space.candidates[candidate, RELEASED] != 0:
            change = comes_back(choosing, candidate)
            if room + change < newcomer.tasks:
                change += goes(choosing, candidate)
            room += change
    kept = ZERO
    for candidate in range(count):
        if space.candidates[candidate, RELEASED] != 0:
            space.victims[kept] = candidate
            kept += 1
    return kept
