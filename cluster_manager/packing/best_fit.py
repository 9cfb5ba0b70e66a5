"""Kernels that choose the machines for one job in one cluster, from what is free.

The rule, in MAST's words (§4.3): machines in the order of their racks, allocated rack by rack, with the fewest machines
by taking those with the most room first. Precisely, for a job of T identical tasks, where a machine's room is the
number of the job's tasks that it can hold now:

1. If the tasks have GPUs and one machine has room for all T: the one that is left with the fewest idle GPUs.
2. Else, if one rack has room for all T: the first such rack; for a job to be consolidated the one where the fewest
   machines are needed.
3. Else several racks: those with the most room first, whole, until one rack has room for the rest; of these the one
   with the least room.

Inside the rack that is not taken whole, machines are taken whole, in the order of the most room first (for a job to be
consolidated, and for one without GPUs) or of the fewest GPUs left idle and then the most room (for the rest), until
one machine has room for the tasks that remain; of these machines the one left with the fewest idle GPUs (idle CPUs,
on a machine without GPUs) takes them. All ties go to the first in order.

A job without GPUs uses machines without GPUs; only what finds no room there in its cluster goes to machines with GPUs.
"""

from __future__ import annotations

from cluster_manager.capacity.machines import (
    FIRST_MACHINE,
    FIRST_RACK,
    GPUS,
    GREATEST,
    MILLICPUS,
    MIXED,
    NO_WORK,
    RACK_SHAPE,
    RESOURCES,
    SHAPE,
    UNTOUCHED,
    WORKS_AS,
    FleetArrays,
    Integers,
)
from cluster_manager.capacity.needs import MUCH, Needs
from cluster_manager.kernel_scratch import Choice, KernelScratch, Newcomer
from cluster_manager.kernels.compiled import compiled_part, constant
from cluster_manager.kernels.sorting import put_in_stable_order

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
def works_in_tier(fleet: FleetArrays, needs: Needs, machine: int, tier: int) -> bool:
    """Whether the machine takes work and is of this tier."""
    shape = fleet.state[machine, WORKS_AS]
    return bool(shape != NO_WORK and needs.tier[shape] == tier)


@compiled_part
def room_on(fleet: FleetArrays, needs: Needs, machine: int, most: int) -> int:
    """How many tasks a machine that takes work and fits has room for, at most `most`."""
    shape = fleet.state[machine, WORKS_AS]
    room = most
    for resource in range(RESOURCES):
        need = needs.need[shape, resource]
        if need > 0:
            free = fleet.state[machine, resource]
            if free < need:
                return 0
            room = min(room, int(free / need))
    return room


@compiled_part
def rack_may_hold(fleet: FleetArrays, needs: Needs, rack: int, tier: int) -> bool:
    """False when the summaries already show that no machine of the rack has room for one task."""
    shape = fleet.racks[rack, RACK_SHAPE]
    if shape != MIXED and needs.tier[shape] != tier:
        return False
    for resource in range(RESOURCES):
        least = needs.least[resource] if shape == MIXED else needs.need[shape, resource]
        if fleet.rack_room[rack, GREATEST + resource] < least:
            return False
    return True


@compiled_part
def rack_is_whole(fleet: FleetArrays, rack: int) -> bool:
    """Whether all machines of the rack are of one shape, take work, and hold nothing."""
    machines = fleet.racks[rack + 1, FIRST_MACHINE] - fleet.racks[rack, FIRST_MACHINE]
    return bool(fleet.racks[rack, RACK_SHAPE] != MIXED and fleet.rack_room[rack, UNTOUCHED] == machines)


@compiled_part
def rack_sum_suffices(fleet: FleetArrays, needs: Needs, rack: int, tasks: int) -> bool:
    """False when what is idle in the whole rack is already less than the tasks need."""
    enough = True
    for resource in range(RESOURCES):
        enough = enough and fleet.rack_room[rack, resource] >= tasks * needs.least[resource]
    return enough


@compiled_part
def room_in_rack(fleet: FleetArrays, needs: Needs, rack: int, tier: int, most: int) -> int:
    """How many tasks the rack's machines of this tier have room for, each counted up to `most`."""
    if not rack_may_hold(fleet, needs, rack, tier):
        return 0
    first = fleet.racks[rack, FIRST_MACHINE]
    end = fleet.racks[rack + 1, FIRST_MACHINE]
    if rack_is_whole(fleet, rack):
        return int((end - first) * min(needs.whole_room[fleet.racks[rack, RACK_SHAPE]], most))
    room = 0
    for machine in range(first, end):
        if works_in_tier(fleet, needs, machine, tier):
            room += room_on(fleet, needs, machine, most)
    return room


@compiled_part
def room_in_cluster(fleet: FleetArrays, needs: Needs, cluster: int, tier: int, most: int, rack_room: Integers) -> int:
    """How many tasks the cluster's machines of this tier have room for; fills `rack_room` for its racks."""
    room = 0
    for rack in range(fleet.clusters[cluster, FIRST_RACK], fleet.clusters[cluster + 1, FIRST_RACK]):
        rack_room[rack] = room_in_rack(fleet, needs, rack, tier, most)
        room += rack_room[rack]
    return room


@compiled_part
def tightest_machine(fleet: FleetArrays, needs: Needs, cluster: int, tier: int, tasks: int) -> int:
    """The machine that holds all tasks and is left with the fewest idle GPUs; NONE when no single one holds them."""
    best = NONE
    fewest_free = MUCH
    for rack in range(fleet.clusters[cluster, FIRST_RACK], fleet.clusters[cluster + 1, FIRST_RACK]):
        if not rack_may_hold(fleet, needs, rack, tier):
            continue
        first = fleet.racks[rack, FIRST_MACHINE]
        # Machines of a rack that holds nothing are all alike, so the first of them stands for all.
        end = first + 1 if rack_is_whole(fleet, rack) else fleet.racks[rack + 1, FIRST_MACHINE]
        for machine in range(first, end):
            free = fleet.state[machine, GPUS]
            if free >= fewest_free or not works_in_tier(fleet, needs, machine, tier):
                continue
            if room_on(fleet, needs, machine, tasks) < tasks:
                continue
            best = machine
            fewest_free = free
            if free == needs.need[fleet.fixed[machine, SHAPE], GPUS] * tasks:
                return best
    return best


@compiled_part
def gather_rack(fleet: FleetArrays, newcomer: Newcomer, rack: int, tier: int, most: int, space: KernelScratch) -> int:
    """Lists the rack's machines that have room, with the key by which they are taken whole; returns their number."""
    most_room_first = newcomer.request.consolidate or newcomer.request.gpus == 0
    count = 0
    for machine in range(fleet.racks[rack, FIRST_MACHINE], fleet.racks[rack + 1, FIRST_MACHINE]):
        if not works_in_tier(fleet, newcomer.needs, machine, tier):
            continue
        room = room_on(fleet, newcomer.needs, machine, most)
        if room == 0:
            continue
        left_idle = max(0, fleet.state[machine, GPUS]) - room * newcomer.request.gpus
        if most_room_first:
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
def idle_measure(fleet: FleetArrays, machine: int) -> int:
    """What a tight fit should leave little of: idle GPUs, or idle CPUs on a machine without GPUs."""
    if fleet.shapes[fleet.fixed[machine, SHAPE], GPUS] > 0:
        return int(max(0, fleet.state[machine, GPUS]))
    return int(fleet.state[machine, MILLICPUS])


@compiled_part
def tightest_candidate(fleet: FleetArrays, space: KernelScratch, first: int, count: int, tasks: int) -> int:
    """Of the candidates from this position on, the machine with the least idle that has room for all these tasks."""
    tightest = NONE
    least_idle = MUCH
    for position in range(first, count):
        candidate = space.order[position]
        machine = space.candidate[candidate]
        if space.room[candidate] >= tasks:
            idle = idle_measure(fleet, machine)
            if idle < least_idle or (idle == least_idle and machine < tightest):
                tightest = machine
                least_idle = idle
    return tightest


@compiled_part
def pack_rack(fleet: FleetArrays, newcomer: Newcomer, rack: int, tier: int, tasks: int, space: KernelScratch) -> None:
    """Adds to the trial machines of this rack for so many tasks, which it must have room for."""
    candidates = gather_rack(fleet, newcomer, rack, tier, tasks, space)
    put_in_order(space, candidates)
    remaining = tasks
    for position in range(candidates):
        if space.greatest_after[position] >= remaining:
            machine = tightest_candidate(fleet, space, position, candidates, remaining)
            add_machine(space.trial, machine, remaining)
            return
        candidate = space.order[position]
        add_machine(space.trial, space.candidate[candidate], space.room[candidate])
        remaining -= space.room[candidate]


@compiled_part
def take_rack_whole(fleet: FleetArrays, needs: Needs, rack: int, tier: int, most: int, choice: Choice) -> None:
    """Adds every machine of the rack that has room, with as many tasks as it can hold."""
    for machine in range(fleet.racks[rack, FIRST_MACHINE], fleet.racks[rack + 1, FIRST_MACHINE]):
        if works_in_tier(fleet, needs, machine, tier):
            room = room_on(fleet, needs, machine, most)
            if room > 0:
                add_machine(choice, machine, room)


@compiled_part
def first_rack_that_holds(fleet: FleetArrays, needs: Needs, cluster: int, tier: int, tasks: int) -> int:
    """The first rack with room for all tasks, or NONE."""
    for rack in range(fleet.clusters[cluster, FIRST_RACK], fleet.clusters[cluster + 1, FIRST_RACK]):
        if rack_sum_suffices(fleet, needs, rack, tasks) and room_in_rack(fleet, needs, rack, tier, tasks) >= tasks:
            return rack
    return NONE


@compiled_part
def rack_with_fewest_machines(
    fleet: FleetArrays, newcomer: Newcomer, cluster: int, tier: int, tasks: int, space: KernelScratch
) -> int:
    """The rack that holds all tasks on the fewest machines, the first of these; or NONE."""
    needs = newcomer.needs
    best = NONE
    fewest = MUCH
    length = space.trial.length[0]
    for rack in range(fleet.clusters[cluster, FIRST_RACK], fleet.clusters[cluster + 1, FIRST_RACK]):
        if not rack_sum_suffices(fleet, needs, rack, tasks):
            continue
        room = tasks
        for resource in range(RESOURCES):
            if needs.least[resource] > 0:
                room = min(room, fleet.rack_room[rack, GREATEST + resource] // needs.least[resource])
        if room == 0 or (tasks + room - 1) // room >= fewest:
            continue
        if room_in_rack(fleet, needs, rack, tier, tasks) >= tasks:
            pack_rack(fleet, newcomer, rack, tier, tasks, space)
            if space.trial.length[0] - length < fewest:
                fewest = space.trial.length[0] - length
                best = rack
            space.trial.length[0] = length
    return best


@compiled_part
def pack_racks(
    fleet: FleetArrays, newcomer: Newcomer, cluster: int, tier: int, tasks: int, space: KernelScratch
) -> None:
    """Adds machines of several racks, by the rooms in `rack_room`, which together suffice."""
    first = fleet.clusters[cluster, FIRST_RACK]
    end = fleet.clusters[cluster + 1, FIRST_RACK]
    remaining = tasks
    while remaining > 0:
        widest = first
        tightest = NONE
        for rack in range(first, end):
            room = space.rack_room[rack]
            if room > space.rack_room[widest]:
                widest = rack
            if room >= remaining and (tightest == NONE or room < space.rack_room[tightest]):
                tightest = rack
        if tightest != NONE:
            pack_rack(fleet, newcomer, tightest, tier, remaining, space)
            return
        take_rack_whole(fleet, newcomer.needs, widest, tier, tasks, space.trial)
        remaining -= space.rack_room[widest]
        space.rack_room[widest] = 0


@compiled_part
def choose_in_tier(
    fleet: FleetArrays, newcomer: Newcomer, cluster: int, tier: int, tasks: int, space: KernelScratch
) -> bool:
    """Adds machines of one tier for so many of the job's tasks; False, and nothing is added, without room for all.

    Then `rack_room` holds the room of each rack of the cluster.
    """
    if newcomer.request.gpus > 0:
        machine = tightest_machine(fleet, newcomer.needs, cluster, tier, tasks)
        if machine != NONE:
            add_machine(space.trial, machine, tasks)
            return True
    if newcomer.request.consolidate:
        rack = rack_with_fewest_machines(fleet, newcomer, cluster, tier, tasks, space)
    else:
        rack = first_rack_that_holds(fleet, newcomer.needs, cluster, tier, tasks)
    if rack != NONE:
        pack_rack(fleet, newcomer, rack, tier, tasks, space)
        return True
    if room_in_cluster(fleet, newcomer.needs, cluster, tier, tasks, space.rack_room) < tasks:
        return False
    pack_racks(fleet, newcomer, cluster, tier, tasks, space)
    return True


@compiled_part
def choose_machines(fleet: FleetArrays, newcomer: Newcomer, cluster: int, space: KernelScratch) -> bool:
    """Fills the trial with machines of the cluster for all tasks; False exactly when there is no room for all."""
    needs = newcomer.needs
    remaining = newcomer.request.tasks
    space.trial.length[0] = 0
    for resource in range(RESOURCES):
        if needs.least[resource] == MUCH:
            return False
        if fleet.cluster_room[cluster, resource] < remaining * needs.least[resource]:
            return False
    for tier in range(newcomer.tiers):
        if choose_in_tier(fleet, newcomer, cluster, tier, remaining, space):
            return True
        # No room for all on these machines: fill them, the rest goes to the last resort.
        for rack in range(fleet.clusters[cluster, FIRST_RACK], fleet.clusters[cluster + 1, FIRST_RACK]):
            if space.rack_room[rack] > 0:
                remaining -= space.rack_room[rack]
                take_rack_whole(fleet, needs, rack, tier, newcomer.request.tasks, space.trial)
    return False
