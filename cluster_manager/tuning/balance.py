"""A second way to begin a round: what all would hold if machines were one, spread so that each has room for its part of it.

Rule: of all steps to faster options those that gain most for what they cost are taken, as long as all machines together
have the amounts (the ideal allocation of Synergy-OPT, §4.1.1, by a greedy instead of a program). Then jobs go, by
falling demand, to the machine where, had all what is ideal for them, most would be left: sensitive jobs come to lie beside
insensitive ones. Everybody begins with the base, and gets the ideal where it fits.

Invariant: as for Synergy-TUNE; who runs is the same.
"""

from __future__ import annotations

import numpy as np

from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, Integers, Reals
from cluster_manager.tuning.demand import CPU, MEMORY
from cluster_manager.tuning.placing import NOWHERE, choose, give, put, take
from cluster_manager.tuning.round_arrays import RoundArrays
from kernels.compiled import compiled, compiled_part


@compiled_part
def next_step(arrays: RoundArrays, job: int, option: int, prices: Reals, step: Reals) -> int:
    """The faster option of a job that gains most per price of what it holds more, NOWHERE if there is none; step[0] is
    what it gains."""
    row = arrays.first[job]
    found = NOWHERE
    step[0] = 0.0
    for faster in range(option + 1, arrays.option_count[job]):
        gain = arrays.speeds[row + faster] - arrays.speeds[row + option]
        cost = arrays.gpus[job] * (
            prices[CPU] * (arrays.options[row + faster, CPU] - arrays.options[row + option, CPU])
            + prices[MEMORY] * (arrays.options[row + faster, MEMORY] - arrays.options[row + option, MEMORY])
        )
        rate = gain / max(cost, 1e-12)
        if gain > 0.0 and rate > step[0]:
            found = faster
            step[0] = rate
    return found


@compiled_part
def put_in_tree(tree: Integers, rates: Reals, place: int) -> None:
    """Plays the matches of a place again, whose rate has changed: tree[1] is the place of the greatest rate, the first of equals.

    Leaves are tree[len(tree) // 2 + place]; each node above is the better of its two.
    """
    node = (len(tree) // 2 + place) // 2
    while node >= 1:
        left, right = tree[2 * node], tree[2 * node + 1]
        tree[node] = right if rates[right] > rates[left] else left
        node //= 2


@compiled_part
def ideal_options(
    arrays: RoundArrays,
    order: Integers,
    prices: Reals,
    left: Integers,
    ideal: Integers,
    ahead: Integers,
    rates: Reals,
    tree: Integers,
) -> None:
    """Fills `ideal` for the jobs in the order, taking from `left` what they hold more than their base.

    `ahead`, `rates` and `tree` are for its own use: the first has a place for each job, the second for each leaf of the
    tree and one more.
    """
    leaves = len(tree) // 2
    step = rates[leaves:]
    for place in range(leaves):
        tree[leaves + place] = place
        rates[place] = 0.0
    for place in range(len(order)):
        ideal[order[place]] = 0
        ahead[place] = next_step(arrays, order[place], 0, prices, step)
        rates[place] = step[0]
    for node in range(leaves - 1, 0, -1):
        one, other = tree[2 * node], tree[2 * node + 1]
        tree[node] = other if rates[other] > rates[one] else one
    while True:
        # A step that there is has a rate above 0.
        best = tree[1]
        if not rates[best] > 0.0:
            return
        job = order[best]
        row = arrays.first[job]
        old, new = row + ideal[job], row + ahead[best]
        cpus = arrays.gpus[job] * (arrays.options[new, CPU] - arrays.options[old, CPU])
        memory = arrays.gpus[job] * (arrays.options[new, MEMORY] - arrays.options[old, MEMORY])
        if cpus > left[CPU] or memory > left[MEMORY]:
            rates[best] = 0.0
        else:
            left[CPU] -= cpus
            left[MEMORY] -= memory
            ideal[job] = ahead[best]
            ahead[best] = next_step(arrays, job, ideal[job], prices, step)
            rates[best] = step[0]
        put_in_tree(tree, rates, best)


@compiled_part
def roomiest(arrays: RoundArrays, job: int, target: int, free: Integers, whole: Integers, least: Integers) -> int:
    """The machine with GPUs for a whole job where most would be left of what is scarcer, if all held what is ideal for
    them (`free`) and each idle GPU the least of anybody; NOWHERE."""
    row = arrays.first[job] + target
    gpus = arrays.gpus[job]
    found = NOWHERE
    most = 0.0
    for machine in range(len(free)):
        if arrays.free[machine, GPUS] < gpus:
            continue
        base = arrays.first[job]
        if (
            arrays.free[machine, MILLICPUS] < gpus * arrays.options[base, CPU]
            or arrays.free[machine, MEBIBYTES] < gpus * arrays.options[base, MEMORY]
        ):
            continue
        idle = arrays.free[machine, GPUS] - gpus
        cpus = free[machine, CPU] - gpus * arrays.options[row, CPU] - idle * least[CPU]
        memory = free[machine, MEMORY] - gpus * arrays.options[row, MEMORY] - idle * least[MEMORY]
        left = min(cpus / max(1, whole[CPU]), memory / max(1, whole[MEMORY]))
        if found == NOWHERE or left > most:
            found, most = machine, left
    return found


@compiled
def place_balanced(arrays: RoundArrays, order: Integers, targets: Integers, prices: Reals) -> None:
    """Places jobs, in the order of their ideal, and gives them that where it fits. Fills `targets` with it."""
    machines = len(arrays.free)
    left, least, whole = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64)
    free = np.zeros((machines, 2), np.int64)
    for machine in range(machines):
        for resource in range(2):
            free[machine, resource] = arrays.free[machine, resource + 1]
            left[resource] += arrays.free[machine, resource + 1]
            whole[resource] = max(whole[resource], free[machine, resource])
    for job in order:
        for resource in range(2):
            base = arrays.options[arrays.first[job], resource]
            left[resource] -= arrays.gpus[job] * base
            least[resource] = base if job == order[0] else min(least[resource], base)
    leaves = 1
    while leaves < len(order):
        leaves *= 2
    tree, rates = np.zeros(2 * leaves, np.int64), np.zeros(leaves + 1)
    ideal_options(arrays, order, prices, left, targets, np.zeros(len(order), np.int64), rates, tree)
    surplus = np.zeros(len(order))
    for place in range(len(order)):
        job = order[place]
        row = arrays.first[job] + targets[job]
        surplus[place] = -arrays.gpus[job] * (
            1e6 + prices[CPU] * arrays.options[row, CPU] + prices[MEMORY] * arrays.options[row, MEMORY]
        )
    for place in np.argsort(surplus, kind="mergesort"):
        job = order[place]
        machine = roomiest(arrays, job, targets[job], free, whole, least)
        if machine != NOWHERE:
            take(arrays, job, machine, arrays.gpus[job], 0)
        else:
            count = choose(arrays, job, 0, False)
            if count == 0:
                continue
            put(arrays, job, 0, count)
        row = arrays.first[job] + targets[job]
        for part in range(arrays.parts[job]):
            for resource in range(2):
                free[arrays.part_machine[job, part], resource] -= (
                    arrays.part_gpus[job, part] * arrays.options[row, resource]
                )
    give(arrays, order, targets)
