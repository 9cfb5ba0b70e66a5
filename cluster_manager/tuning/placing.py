"""Kernels that put jobs on machines by what they hold of GPUs, CPUs and memory."""

from __future__ import annotations

from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, Integers
from cluster_manager.tuning.demand import CPU, MEMORY
from cluster_manager.tuning.round_arrays import NOT_PLACED, RoundArrays
from kernels.compiled import compiled, compiled_part

NOWHERE = -1
AFTER_REVERTS = -1
"""In place of an option: with the base, when all others hold no more than theirs. Where nobody but these jobs holds
anything, only GPUs count."""


@compiled_part
def take(arrays: RoundArrays, job: int, machine: int, gpus: int, option: int) -> None:
    """Puts so many of a job's GPUs on a machine."""
    row = arrays.first[job] + option
    arrays.free[machine, GPUS] -= gpus
    arrays.free[machine, MILLICPUS] -= gpus * arrays.options[row, CPU]
    arrays.free[machine, MEBIBYTES] -= gpus * arrays.options[row, MEMORY]
    part = arrays.parts[job]
    arrays.part_machine[job, part] = machine
    arrays.part_gpus[job, part] = gpus
    arrays.parts[job] = part + 1
    arrays.member[machine, arrays.members[machine]] = job
    arrays.members[machine] += 1
    arrays.level[job] = option


@compiled_part
def change(arrays: RoundArrays, job: int, option: int) -> None:
    """A job that is placed holds another option."""
    old, new = arrays.first[job] + arrays.level[job], arrays.first[job] + option
    more_cpus = arrays.options[new, CPU] - arrays.options[old, CPU]
    more_memory = arrays.options[new, MEMORY] - arrays.options[old, MEMORY]
    for part in range(arrays.parts[job]):
        machine, gpus = arrays.part_machine[job, part], arrays.part_gpus[job, part]
        arrays.free[machine, MILLICPUS] -= gpus * more_cpus
        arrays.free[machine, MEBIBYTES] -= gpus * more_memory
    arrays.level[job] = option


@compiled_part
def can_change(arrays: RoundArrays, job: int, option: int) -> bool:
    """Whether all machines of a job have what this option holds more than what it holds now."""
    old, new = arrays.first[job] + arrays.level[job], arrays.first[job] + option
    more_cpus = arrays.options[new, CPU] - arrays.options[old, CPU]
    more_memory = arrays.options[new, MEMORY] - arrays.options[old, MEMORY]
    for part in range(arrays.parts[job]):
        machine, gpus = arrays.part_machine[job, part], arrays.part_gpus[job, part]
        if gpus * more_cpus > arrays.free[machine, MILLICPUS] or gpus * more_memory > arrays.free[machine, MEBIBYTES]:
            return False
    return True


@compiled_part
def released_by(arrays: RoundArrays, job: int, machine: int, resource: int) -> int:
    """CPUs or memory that a machine gets back when a job reverts to its base."""
    row = arrays.first[job]
    for part in range(arrays.parts[job]):
        if arrays.part_machine[job, part] == machine:
            held = arrays.options[row + arrays.level[job], resource]
            released: int = arrays.part_gpus[job, part] * (held - arrays.options[row, resource])
            return released
    return 0


@compiled_part
def gpus_that_fit(arrays: RoundArrays, job: int, machine: int, option: int) -> int:
    """How many of a job's GPUs a machine holds with what the option says for each."""
    fitting: int = arrays.free[machine, GPUS]
    cpus, memory = arrays.free[machine, MILLICPUS], arrays.free[machine, MEBIBYTES]
    row = arrays.first[job]
    if option == AFTER_REVERTS:
        for index in range(arrays.members[machine]):
            cpus += released_by(arrays, arrays.member[machine, index], machine, CPU)
            memory += released_by(arrays, arrays.member[machine, index], machine, MEMORY)
    else:
        row += option
    if arrays.options[row, CPU] > 0:
        fitting = min(fitting, cpus // arrays.options[row, CPU])
    if arrays.options[row, MEMORY] > 0:
        fitting = min(fitting, memory // arrays.options[row, MEMORY])
    return max(0, fitting)


@compiled_part
def is_tighter(free: Integers, machine: int, other: int) -> bool:
    """Whether a machine has less free than another: GPUs, then CPUs, then memory, then the first."""
    for resource in range(3):
        if free[machine, resource] < free[other, resource]:
            return True
        if free[machine, resource] > free[other, resource]:
            return False
    return machine < other


@compiled_part
def tightest(arrays: RoundArrays, gpus: int, first_fit: bool) -> int:
    """Of the machines whose room (scratch[0]) is enough and that are not used yet (scratch[1]) the one with the least
    free, or the first; NOWHERE."""
    room, used = arrays.scratch[0], arrays.scratch[1]
    found = NOWHERE
    for machine in range(len(room)):
        if used[machine] or room[machine] < gpus:
            continue
        if found == NOWHERE or is_tighter(arrays.free, machine, found):
            found = machine
            if first_fit:
                break
    return found


@compiled_part
def choose(arrays: RoundArrays, job: int, option: int, first_fit: bool) -> int:
    """The fewest machines that hold a job with an option, into scratch[2]; how many they are, 0 for none.

    The roomiest whole, until one machine holds the rest: of these the tightest (or the first).
    """
    room, used, chosen = arrays.scratch[0], arrays.scratch[1], arrays.scratch[2]
    total = 0
    for machine in range(len(room)):
        room[machine] = gpus_that_fit(arrays, job, machine, option)
        used[machine] = 0
        total += room[machine]
    left = arrays.gpus[job]
    if total < left:
        return 0
    count = 0
    while True:
        machine = tightest(arrays, left, first_fit)
        if machine != NOWHERE:
            chosen[count] = machine
            return count + 1
        widest = NOWHERE
        for candidate in range(len(room)):
            if not used[candidate] and (
                widest == NOWHERE
                or room[candidate] > room[widest]
                or (room[candidate] == room[widest] and is_tighter(arrays.free, candidate, widest))
            ):
                widest = candidate
        used[widest] = 1
        chosen[count] = widest
        count += 1
        left -= room[widest]


@compiled_part
def put(arrays: RoundArrays, job: int, option: int, count: int) -> None:
    """Puts a job on the machines that were chosen, on each but the last as much of it as there is room for."""
    left = arrays.gpus[job]
    for index in range(count):
        machine = arrays.scratch[2, index]
        gpus = min(left, arrays.scratch[0, machine])
        take(arrays, job, machine, gpus, option)
        left -= gpus


@compiled
def place_greedily(arrays: RoundArrays, order: Integers, option: Integers, first_fit: bool) -> None:
    """Places each job with its option where it fits, else not at all, in this order."""
    for job in order:
        count = choose(arrays, job, option[job], first_fit)
        if count:
            put(arrays, job, option[job], count)


@compiled_part
def revert_for(arrays: RoundArrays, machine: int, cpus: int, memory: int) -> None:
    """Reverts jobs on a machine to their base until so much is free: the one that releases just enough, else the one
    that releases the most, again and again."""
    while arrays.free[machine, MILLICPUS] < cpus or arrays.free[machine, MEBIBYTES] < memory:
        chosen, chosen_enough, chosen_excess = NOWHERE, False, 0
        for index in range(arrays.members[machine]):
            job = arrays.member[machine, index]
            if arrays.level[job] <= 0:
                continue
            excess = arrays.free[machine, MILLICPUS] + released_by(arrays, job, machine, CPU) - cpus
            enough = (
                excess >= 0 and arrays.free[machine, MEBIBYTES] + released_by(arrays, job, machine, MEMORY) >= memory
            )
            better = excess < chosen_excess if enough else excess > chosen_excess
            if chosen == NOWHERE or (enough and not chosen_enough) or (enough == chosen_enough and better):
                chosen, chosen_enough, chosen_excess = job, enough, excess
        if chosen == NOWHERE:
            return
        change(arrays, chosen, 0)


@compiled
def place_tuning(arrays: RoundArrays, order: Integers) -> None:
    """Places jobs by Synergy-TUNE (§4.2), in this order.

    With the best demand, else (step 1) with the base, else (step 2) by GPUs alone: then those who hold more than their
    base there revert, until it fits. A job is not placed only if its GPUs are not there.
    """
    for job in order:
        count = choose(arrays, job, arrays.best[job], False)
        if count:
            put(arrays, job, arrays.best[job], count)
            continue
        if arrays.best[job] != 0:
            count = choose(arrays, job, 0, False)
            if count:
                put(arrays, job, 0, count)
                continue
        count = choose(arrays, job, AFTER_REVERTS, False)
        left = arrays.gpus[job]
        row = arrays.first[job]
        for index in range(count):
            machine = arrays.scratch[2, index]
            gpus = min(left, arrays.scratch[0, machine])
            revert_for(arrays, machine, gpus * arrays.options[row, CPU], gpus * arrays.options[row, MEMORY])
            left -= gpus
        if count:
            put(arrays, job, 0, count)


@compiled_part
def give(arrays: RoundArrays, order: Integers, options: Integers) -> None:
    """Gives jobs that are placed these options, in this order, where they fit."""
    for job in order:
        if arrays.level[job] != NOT_PLACED and can_change(arrays, job, options[job]):
            change(arrays, job, options[job])


@compiled
def grant(arrays: RoundArrays, order: Integers, options: Integers) -> None:
    """As `give`."""
    give(arrays, order, options)


@compiled
def place_with_base(arrays: RoundArrays, order: Integers) -> None:
    """Places each job with its base where it fits, on the tightest machines, in this order."""
    for job in order:
        count = choose(arrays, job, 0, False)
        if count:
            put(arrays, job, 0, count)


@compiled
def place_on(arrays: RoundArrays, job: int, machine: int, option: int) -> None:
    """Puts a whole job on a machine that has room for it."""
    take(arrays, job, machine, arrays.gpus[job], option)
