"""Kernels that choose the machines for one job in one cluster, from what is free.

The rule, in MAST's words (§4.3): machines in the order of their racks, allocated rack by rack, with the fewest machines
by taking those with the most room first. Precisely, for a job of T identical tasks, where a machine's room is the
number of the job's tasks that it can hold now:

1. If the tasks have GPUs and one machine has room for all T: the one that is left with the fewest idle GPUs; but not an
   idle one for several tasks of a job that fills fragments.
2. Else, if one rack has room for all T: the first such rack; for a job to be consolidated the one where the fewest
   machines are needed.
3. Else several racks: those with the most room first, whole, until one rack has room for the rest; of these the one
   with the least room.

Inside the rack that is not taken whole, machines are taken whole, in the order of the most room first (for a job to be
consolidated, and for one without GPUs) or of the fewest GPUs left idle and then the most room (for the rest), until
one machine has room for the tasks that remain; of these machines the one left with the fewest idle GPUs (idle CPUs,
on a machine without GPUs) takes them. A job that fills fragments takes the machines in the order of the fewest idle GPUs
and then the most room, as many tasks on each as it holds. All ties go to the first in order.

A job without GPUs uses machines without GPUs; only what finds no room there in its cluster goes to machines with GPUs.
"""

from __future__ import annotations

from cluster_manager.capacity.charging import FIRST
from cluster_manager.capacity.fitting import (
    rack_is_whole,
    rack_may_hold,
    tasks_in_cluster,
    tasks_in_rack,
    tasks_on,
    works_in_tier,
)
from cluster_manager.capacity.tables import (
    FIRST_MACHINE,
    GPUS,
    GREATEST,
    MILLICPUS,
    RESOURCES,
    SHAPE,
    ClusterArrays,
)
from cluster_manager.capacity.task_kinds import MUCH, Needs
from cluster_manager.kernel_scratch import Choice, KernelScratch, Newcomer
from cluster_manager.kernels.sorting import put_in_stable_order
from kernels.compiled import compiled_part, constant

NONE = constant(-1)
ROOM_BITS = 1 << 21
"""More than any room: a room is at most the job's number of tasks."""


@compiled_part
def add_machine(choice: Choice, machine: int, tasks: int) -> None:
    """Adds a machine to the choice."""
    position = choice.length[0]
    choice.machine[position] = machine
    choice.tasks[position] = tasks
    choice.length[0] = position + 1


@compiled_part
def rack_sum_suffices(cluster: ClusterArrays, needs: Needs, rack: int, tasks: int) -> bool:
    """False when what is idle in the whole rack is already less than the tasks need."""
    enough = True
    for resource in range(RESOURCES):
        enough = enough and cluster.rack_free[rack, resource] >= tasks * needs.least[resource]
    return enough


@compiled_part
def tightest_machine(cluster: ClusterArrays, needs: Needs, tier: int, tasks: int) -> int:
    """The machine that holds all tasks and is left with the fewest idle GPUs; NONE when no single one holds them."""
    best = NONE
    fewest_free = MUCH
    for rack in range(len(cluster.rack_free)):
        if not rack_may_hold(cluster, needs, rack, tier):
            continue
        first = cluster.racks[rack, FIRST_MACHINE]
        # Machines of a rack that holds nothing are all alike, so the first of them stands for all.
        end = first + 1 if rack_is_whole(cluster, rack) else cluster.racks[rack + 1, FIRST_MACHINE]
        for machine in range(first, end):
            free = cluster.state[machine, GPUS]
            # The cheap comparison first: most machines that could hold the tasks are no tighter than the best so far.
            if free >= fewest_free or not works_in_tier(cluster, needs, machine, tier):
                continue
            if tasks_on(cluster, needs.table, machine, tasks) < tasks:
                continue
            best = machine
            fewest_free = free
            # Nothing can be tighter than a machine that the tasks fill.
            if free == needs.table[cluster.fixed[machine, SHAPE], GPUS] * tasks:
                return best
    return best


@compiled_part
def is_idle(cluster: ClusterArrays, machine: int) -> bool:
    """Whether none of its GPUs is held."""
    return bool(cluster.state[machine, GPUS] >= cluster.shapes[cluster.fixed[machine, SHAPE], GPUS])


@compiled_part
def gather_rack(
    cluster: ClusterArrays, newcomer: Newcomer, rack: int, tier: int, most: int, space: KernelScratch
) -> int:
    """Lists the rack's machines that have room, with the key by which they are taken whole; returns their number."""
    most_room_first = newcomer.consolidate or newcomer.gpus == 0
    count = 0
    for machine in range(cluster.racks[rack, FIRST_MACHINE], cluster.racks[rack + 1, FIRST_MACHINE]):
        if not works_in_tier(cluster, newcomer.needs, machine, tier):
            continue
        room = tasks_on(cluster, newcomer.needs.table, machine, most)
        if room == 0:
            continue
        left_idle = max(0, cluster.state[machine, GPUS]) - room * newcomer.gpus
        # Two criteria in one number, the more important one in the upper bits: one sort instead of two. Ties keep the
        # order of the rack, for the sort is stable.
        if newcomer.fills:
            space.key[count] = max(0, cluster.state[machine, GPUS]) * ROOM_BITS + (ROOM_BITS - room)
        elif most_room_first:
            space.key[count] = (ROOM_BITS - room) * ROOM_BITS + left_idle
        else:
            space.key[count] = left_idle * ROOM_BITS + (ROOM_BITS - room)
        space.candidate[count] = machine
        space.room[count] = room
        count += 1
    return count


@compiled_part
def put_in_order(space: KernelScratch, count: int) -> None:
    """Sorts the candidates by key into `order`, and fills in the greatest room from each position on."""
    put_in_stable_order(space.key, count, space.order, space.spare)
    greatest = 0
    for position in range(count - 1, -1, -1):
        greatest = max(greatest, space.room[space.order[position]])
        space.greatest_after[position] = greatest


@compiled_part
def idle_measure(cluster: ClusterArrays, machine: int) -> int:
    """What a tight fit should leave little of: idle GPUs, or idle CPUs on a machine without GPUs."""
    if cluster.shapes[cluster.fixed[machine, SHAPE], GPUS] > 0:
        return int(max(0, cluster.state[machine, GPUS]))
    return int(cluster.state[machine, MILLICPUS])


@compiled_part
def tightest_candidate(cluster: ClusterArrays, space: KernelScratch, first: int, count: int, tasks: int) -> int:
    """Of the candidates from this position on, the machine with the least idle that has room for all these tasks."""
    tightest = NONE
    least_idle = MUCH
    for position in range(first, count):
        candidate = space.order[position]
        machine = space.candidate[candidate]
        if space.room[candidate] >= tasks:
            idle = idle_measure(cluster, machine)
            if idle < least_idle or (idle == least_idle and machine < tightest):
                tightest = machine
                least_idle = idle
    return tightest


@compiled_part
def pack_rack(
    cluster: ClusterArrays, newcomer: Newcomer, rack: int, tier: int, tasks: int, space: KernelScratch
) -> None:
    """Adds to the choice machines of this rack for so many tasks, which it must have room for."""
    candidates = gather_rack(cluster, newcomer, rack, tier, tasks, space)
    put_in_order(space, candidates)
    remaining = tasks
    for position in range(candidates):
        candidate = space.order[position]
        if newcomer.fills and space.room[candidate] >= remaining:
            add_machine(space.choice, space.candidate[candidate], remaining)
            return
        if not newcomer.fills and space.greatest_after[position] >= remaining:
            machine = tightest_candidate(cluster, space, position, candidates, remaining)
            add_machine(space.choice, machine, remaining)
            return
        add_machine(space.choice, space.candidate[candidate], space.room[candidate])
        remaining -= space.room[candidate]


@compiled_part
def take_rack_whole(cluster: ClusterArrays, needs: Needs, rack: int, tier: int, most: int, choice: Choice) -> None:
    """Adds every machine of the rack that has room, with as many tasks as it can hold."""
    for machine in range(cluster.racks[rack, FIRST_MACHINE], cluster.racks[rack + 1, FIRST_MACHINE]):
        if works_in_tier(cluster, needs, machine, tier):
            room = tasks_on(cluster, needs.table, machine, most)
            if room > 0:
                add_machine(choice, machine, room)


@compiled_part
def first_rack_that_holds(cluster: ClusterArrays, needs: Needs, tier: int, tasks: int) -> int:
    """The first rack with room for all tasks, or NONE."""
    for rack in range(len(cluster.rack_free)):
        if rack_sum_suffices(cluster, needs, rack, tasks) and tasks_in_rack(cluster, needs, rack, tier, tasks) >= tasks:
            return rack
    return NONE


@compiled_part
def rack_with_fewest_machines(
    cluster: ClusterArrays, newcomer: Newcomer, tier: int, tasks: int, space: KernelScratch
) -> int:
    """The rack that holds all tasks on the fewest machines, the first of these; or NONE."""
    needs = newcomer.needs
    best = NONE
    fewest = MUCH
    length = space.choice.length[0]
    for rack in range(len(cluster.rack_free)):
        if not rack_sum_suffices(cluster, needs, rack, tasks):
            continue
        room = tasks
        for resource in range(RESOURCES):
            if needs.least[resource] > 0:
                room = min(room, cluster.rack_free[rack, GREATEST + resource] // needs.least[resource])
        # No machine of the rack has more room than that, so it needs at least so many machines: packing it, to count
        # them, is worth while only if even these are fewer than the best rack needs.
        if room == 0 or (tasks + room - 1) // room >= fewest:
            continue
        if tasks_in_rack(cluster, needs, rack, tier, tasks) >= tasks:
            pack_rack(cluster, newcomer, rack, tier, tasks, space)
            if space.choice.length[0] - length < fewest:
                fewest = space.choice.length[0] - length
                best = rack
            # It was packed only to be counted.
            space.choice.length[0] = length
    return best


@compiled_part
def pack_racks(cluster: ClusterArrays, newcomer: Newcomer, tier: int, tasks: int, space: KernelScratch) -> None:
    """Adds machines of several racks, by the rooms in `rack_tasks`, which together suffice."""
    remaining = tasks
    while remaining > 0:
        widest = FIRST
        tightest = NONE
        for rack in range(len(cluster.rack_free)):
            room = space.rack_tasks[rack]
            if room > space.rack_tasks[widest]:
                widest = rack
            if room >= remaining and (tightest == NONE or room < space.rack_tasks[tightest]):
                tightest = rack
        if tightest != NONE:
            pack_rack(cluster, newcomer, tightest, tier, remaining, space)
            return
        take_rack_whole(cluster, newcomer.needs, widest, tier, tasks, space.choice)
        remaining -= space.rack_tasks[widest]
        space.rack_tasks[widest] = 0


@compiled_part
def choose_in_tier(cluster: ClusterArrays, newcomer: Newcomer, tier: int, tasks: int, space: KernelScratch) -> bool:
    """Adds machines of one tier for so many of the job's tasks; False, and nothing is added, without room for all.

    Then `rack_tasks` holds the room of each rack of the cluster.
    """
    if newcomer.gpus > 0:
        machine = tightest_machine(cluster, newcomer.needs, tier, tasks)
        if machine != NONE and not (newcomer.fills and tasks > 1 and is_idle(cluster, machine)):
            add_machine(space.choice, machine, tasks)
            return True
    if newcomer.consolidate:
        rack = rack_with_fewest_machines(cluster, newcomer, tier, tasks, space)
    else:
        rack = first_rack_that_holds(cluster, newcomer.needs, tier, tasks)
    if rack != NONE:
        pack_rack(cluster, newcomer, rack, tier, tasks, space)
        return True
    if tasks_in_cluster(cluster, newcomer.needs, tier, tasks, space.rack_tasks) < tasks:
        return False
    pack_racks(cluster, newcomer, tier, tasks, space)
    return True


@compiled_part
def choose_machines(cluster: ClusterArrays, newcomer: Newcomer, space: KernelScratch) -> bool:
    """Fills the choice with machines of the cluster for all tasks; False exactly when there is no room for all."""
    needs = newcomer.needs
    remaining = newcomer.tasks
    space.choice.length[0] = 0
    for resource in range(RESOURCES):
        if needs.least[resource] == MUCH:
            return False
        # The sum of what is idle refuses full clusters without a look at any machine.
        if cluster.totals[resource] < remaining * needs.least[resource]:
            return False
    for tier in range(newcomer.tiers):
        if choose_in_tier(cluster, newcomer, tier, remaining, space):
            return True
        # No room for all on these machines: fill them, the rest goes to the last resort.
        for rack in range(len(cluster.rack_free)):
            if space.rack_tasks[rack] > 0:
                remaining -= space.rack_tasks[rack]
                take_rack_whole(cluster, needs, rack, tier, newcomer.tasks, space.choice)
    return False
