"""A local search that makes a round faster without moving anything: beyond Synergy, which knows best demands and shares only.

Rule: a job gets a faster option where it fits; or it does where another job on one of its machines, holding a slower
one, loses less than it gains. Repeated until nothing helps, or for a number of rounds.

Invariant: total speed never falls, nothing is given out beyond its room, and nobody holds less than its base (I7).
"""

from __future__ import annotations

from cluster_manager.capacity.tables import Integers
from cluster_manager.tuning.placing import can_change, change
from cluster_manager.tuning.round_arrays import NOT_PLACED, RoundArrays
from kernels.compiled import compiled, compiled_part

LEAST_GAIN = 1e-9
MOST_SWEEPS = 20


@compiled_part
def raise_alone(arrays: RoundArrays, job: int) -> bool:
    """Gives a job the fastest option that fits; whether it is faster than before."""
    first = arrays.first[job]
    for option in range(arrays.option_count[job] - 1, arrays.level[job], -1):
        if arrays.speeds[first + option] - arrays.speeds[first + arrays.level[job]] <= LEAST_GAIN:
            return False
        if can_change(arrays, job, option):
            change(arrays, job, option)
            return True
    return False


@compiled_part
def exchange(arrays: RoundArrays, giver: int, taker: int) -> bool:
    """Makes the best exchange between two jobs that share a machine, if there is one that gains."""
    given, taken = arrays.first[giver], arrays.first[taker]
    giver_level, taker_level = arrays.level[giver], arrays.level[taker]
    top = arrays.speeds[taken + arrays.option_count[taker] - 1]
    best_gain, best_giver, best_taker = LEAST_GAIN, giver_level, taker_level
    for lower in range(giver_level - 1, -1, -1):
        loss = arrays.speeds[given + giver_level] - arrays.speeds[given + lower]
        if top - arrays.speeds[taken + taker_level] - loss <= best_gain:
            break
        if not can_change(arrays, giver, lower):
            continue
        change(arrays, giver, lower)
        for higher in range(arrays.option_count[taker] - 1, taker_level, -1):
            gain = arrays.speeds[taken + higher] - arrays.speeds[taken + taker_level] - loss
            if gain <= best_gain:
                break
            if can_change(arrays, taker, higher):
                best_gain, best_giver, best_taker = gain, lower, higher
                break
        change(arrays, giver, giver_level)
    if best_taker == taker_level:
        return False
    change(arrays, giver, best_giver)
    change(arrays, taker, best_taker)
    return True


@compiled
def improve(arrays: RoundArrays, order: Integers, sweeps: int) -> None:
    """Searches from what all hold, jobs in this order."""
    for _ in range(sweeps):
        changed = False
        for job in order:
            if arrays.level[job] == NOT_PLACED or arrays.level[job] == arrays.option_count[job] - 1:
                continue
            changed |= raise_alone(arrays, job)
            for part in range(arrays.parts[job]):
                machine = arrays.part_machine[job, part]
                for index in range(arrays.members[machine]):
                    giver = arrays.member[machine, index]
                    if giver != job and arrays.level[giver] > 0:
                        changed |= exchange(arrays, giver, job)
        if not changed:
            return
