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

from typing import NamedTuple

import numpy as np

from cluster_manager.compiled import compiled
from cluster_manager.machines import GPUS, MILLICPUS, MIXED, RESOURCES, FleetArrays, Integers
from cluster_manager.needs import LAST_RESORT, MUCH, PREFERRED, Needs
from cluster_manager.requests import Request

NONE = -1
ROOM_BITS = 1 << 21
"""More than any room: a room is at most the job's number of tasks."""


class Choice(NamedTuple):
    """Machines and the number of tasks on each: the first `count` of the arrays. With scratch space beside."""

    machine: Integers  # [machine]
    tasks: Integers  # [machine]
    rack_room: Integers  # [rack] scratch
    candidate: Integers  # [machine] scratch
    candidate_room: Integers  # [machine] scratch
    candidate_key: Integers  # [machine] scratch


@compiled
def room_on(fleet: FleetArrays, needs: Needs, machine: int, most: int) -> int:
    """How many tasks the machine has room for, at most `most`. Its shape and state are the caller's business."""
    shape = fleet.machines.shape[machine]
    room = most
    for resource in range(RESOURCES):
        need = needs.need[shape, resource]
        if need > 0:
            free = fleet.machines.free[machine, resource]
            if free < need:
                return 0
            room = min(room, int(free / need))
    return room


@compiled
def rack_may_hold(fleet: FleetArrays, needs: Needs, rack: int, tier: int) -> bool:
    """False when the summaries already show that no machine of the rack has room for one task."""
    shape = fleet.racks.shape[rack]
    if shape != MIXED and needs.tier[shape] != tier:
        return False
    for resource in range(RESOURCES):
        least = needs.least[resource] if shape == MIXED else needs.need[shape, resource]
        if fleet.racks.greatest[rack, resource] < least:
            return False
    return True


@compiled
def room_in_rack(fleet: FleetArrays, needs: Needs, rack: int, tier: int, most: int) -> int:
    """How many tasks the rack's machines of this tier have room for, each counted up to `most`."""
    if not rack_may_hold(fleet, needs, rack, tier):
        return 0
    first = fleet.racks.first_machine[rack]
    end = fleet.racks.first_machine[rack + 1]
    shape = fleet.racks.shape[rack]
    if shape != MIXED and fleet.racks.untouched[rack] == end - first:
        return int((end - first) * min(needs.whole_room[shape], most))
    room = 0
    for machine in range(first, end):
        if fleet.machines.takes_work[machine] and needs.tier[fleet.machines.shape[machine]] == tier:
            room += room_on(fleet, needs, machine, most)
    return room


@compiled
def room_in_cluster(fleet: FleetArrays, needs: Needs, cluster: int, tier: int, most: int, rack_room: Integers) -> int:
    """How many tasks the cluster's machines of this tier have room for; fills `rack_room` for its racks."""
    room = 0
    for rack in range(fleet.clusters.first_rack[cluster], fleet.clusters.first_rack[cluster + 1]):
        rack_room[rack] = room_in_rack(fleet, needs, rack, tier, most)
        room += rack_room[rack]
    return room


@compiled
def tightest_machine(fleet: FleetArrays, needs: Needs, cluster: int, tasks: int) -> int:
    """The machine that holds all tasks and is left with the fewest idle GPUs; NONE when no single one holds them."""
    best = NONE
    fewest_free = MUCH
    for rack in range(fleet.clusters.first_rack[cluster], fleet.clusters.first_rack[cluster + 1]):
        if not rack_may_hold(fleet, needs, rack, PREFERRED):
            continue
        for machine in range(fleet.racks.first_machine[rack], fleet.racks.first_machine[rack + 1]):
            shape = fleet.machines.shape[machine]
            free = fleet.machines.free[machine]
            if free[GPUS] >= fewest_free or not fleet.machines.takes_work[machine]:
                continue
            if needs.tier[shape] != PREFERRED:
                continue
            holds = True
            for resource in range(RESOURCES):
                if free[resource] < needs.need[shape, resource] * tasks:
                    holds = False
            if holds:
                best = machine
                fewest_free = free[GPUS]
                if fewest_free == needs.need[shape, GPUS] * tasks:
                    return best
    return best


@compiled
def gather_rack(
    fleet: FleetArrays, needs: Needs, rack: int, tier: int, most: int, most_room_first: bool, choice: Choice
) -> int:
    """Lists the rack's machines that have room, with the key by which they are taken whole; returns their number."""
    count = 0
    for machine in range(fleet.racks.first_machine[rack], fleet.racks.first_machine[rack + 1]):
        shape = fleet.machines.shape[machine]
        if not fleet.machines.takes_work[machine] or needs.tier[shape] != tier:
            continue
        room = room_on(fleet, needs, machine, most)
        if room == 0:
            continue
        left_idle = max(0, fleet.machines.free[machine, GPUS]) - room * needs.need[shape, GPUS]
        if most_room_first:
            choice.candidate_key[count] = (ROOM_BITS - room) * ROOM_BITS + left_idle
        else:
            choice.candidate_key[count] = left_idle * ROOM_BITS + (ROOM_BITS - room)
        choice.candidate[count] = machine
        choice.candidate_room[count] = room
        count += 1
    return count


@compiled
def idle_measure(fleet: FleetArrays, machine: int) -> int:
    """What a tight fit should leave little of: idle GPUs, or idle CPUs on a machine without GPUs."""
    if fleet.shapes.capacity[fleet.machines.shape[machine], GPUS] > 0:
        return int(max(0, fleet.machines.free[machine, GPUS]))
    return int(fleet.machines.free[machine, MILLICPUS])


@compiled
def pack_rack(
    fleet: FleetArrays,
    needs: Needs,
    rack: int,
    tier: int,
    tasks: int,
    most_room_first: bool,
    choice: Choice,
    count: int,
) -> int:
    """Adds to the choice the machines of this rack for so many tasks, which it must have room for; the new count."""
    candidates = gather_rack(fleet, needs, rack, tier, tasks, most_room_first, choice)
    order = np.argsort(choice.candidate_key[:candidates], kind="mergesort")
    greatest_room_after = np.empty(candidates, np.int64)
    greatest = 0
    for position in range(candidates - 1, -1, -1):
        greatest = max(greatest, choice.candidate_room[order[position]])
        greatest_room_after[position] = greatest
    remaining = tasks
    for position in range(candidates):
        if greatest_room_after[position] < remaining:
            choice.machine[count] = choice.candidate[order[position]]
            choice.tasks[count] = choice.candidate_room[order[position]]
            remaining -= choice.tasks[count]
            count += 1
            continue
        tightest = NONE
        least_idle = MUCH
        for later in range(position, candidates):
            machine = choice.candidate[order[later]]
            idle = idle_measure(fleet, machine)
            if choice.candidate_room[order[later]] >= remaining and (
                idle < least_idle or (idle == least_idle and machine < tightest)
            ):
                tightest = machine
                least_idle = idle
        choice.machine[count] = tightest
        choice.tasks[count] = remaining
        return count + 1
    return count


@compiled
def take_rack_whole(
    fleet: FleetArrays, needs: Needs, rack: int, tier: int, most: int, choice: Choice, count: int
) -> int:
    """Adds every machine of the rack that has room, with as many tasks as it can hold; the new count."""
    for machine in range(fleet.racks.first_machine[rack], fleet.racks.first_machine[rack + 1]):
        if fleet.machines.takes_work[machine] and needs.tier[fleet.machines.shape[machine]] == tier:
            room = room_on(fleet, needs, machine, most)
            if room > 0:
                choice.machine[count] = machine
                choice.tasks[count] = room
                count += 1
    return count


@compiled
def first_rack_that_holds(fleet: FleetArrays, needs: Needs, cluster: int, tier: int, tasks: int) -> int:
    """The first rack with room for all tasks, or NONE."""
    for rack in range(fleet.clusters.first_rack[cluster], fleet.clusters.first_rack[cluster + 1]):
        if rack_sum_suffices(fleet, needs, rack, tasks) and room_in_rack(fleet, needs, rack, tier, tasks) >= tasks:
            return rack
    return NONE


@compiled
def rack_sum_suffices(fleet: FleetArrays, needs: Needs, rack: int, tasks: int) -> bool:
    """False when what is idle in the whole rack is already less than the tasks need."""
    enough = True
    for resource in range(RESOURCES):
        enough = enough and fleet.racks.idle[rack, resource] >= tasks * needs.least[resource]
    return enough


@compiled
def rack_with_fewest_machines(
    fleet: FleetArrays, needs: Needs, cluster: int, tier: int, tasks: int, choice: Choice, count: int
) -> int:
    """The rack that holds all tasks on the fewest machines, the first of these; or NONE. Overwrites the choice."""
    best = NONE
    fewest = MUCH
    for rack in range(fleet.clusters.first_rack[cluster], fleet.clusters.first_rack[cluster + 1]):
        if not rack_sum_suffices(fleet, needs, rack, tasks):
            continue
        room = tasks
        for resource in range(RESOURCES):
            if needs.least[resource] > 0:
                room = min(room, fleet.racks.greatest[rack, resource] // needs.least[resource])
        if room == 0 or (tasks + room - 1) // room >= fewest:
            continue
        if room_in_rack(fleet, needs, rack, tier, tasks) >= tasks:
            machines = pack_rack(fleet, needs, rack, tier, tasks, True, choice, count) - count
            if machines < fewest:
                fewest = machines
                best = rack
    return best


@compiled
def pack_racks(
    fleet: FleetArrays,
    needs: Needs,
    cluster: int,
    tier: int,
    tasks: int,
    most_room_first: bool,
    choice: Choice,
    count: int,
) -> int:
    """Adds machines of several racks, by the rooms in `choice.rack_room`, which together suffice; the new count."""
    first = fleet.clusters.first_rack[cluster]
    end = fleet.clusters.first_rack[cluster + 1]
    remaining = tasks
    while remaining > 0:
        widest = first
        tightest = NONE
        for rack in range(first, end):
            room = choice.rack_room[rack]
            if room > choice.rack_room[widest]:
                widest = rack
            if room >= remaining and (tightest == NONE or room < choice.rack_room[tightest]):
                tightest = rack
        if tightest != NONE:
            return pack_rack(fleet, needs, tightest, tier, remaining, most_room_first, choice, count)
        count = take_rack_whole(fleet, needs, widest, tier, tasks, choice, count)
        remaining -= choice.rack_room[widest]
        choice.rack_room[widest] = 0
    return count


@compiled
def choose_in_tier(
    fleet: FleetArrays, needs: Needs, request: Request, cluster: int, tier: int, tasks: int, choice: Choice, count: int
) -> int:
    """Adds machines of one tier for so many of the request's tasks; the new count, or NONE when there is no room."""
    most_room_first = request.consolidate or request.gpus == 0
    if request.gpus > 0:
        machine = tightest_machine(fleet, needs, cluster, tasks)
        if machine != NONE:
            choice.machine[count] = machine
            choice.tasks[count] = tasks
            return count + 1
    if request.consolidate:
        rack = rack_with_fewest_machines(fleet, needs, cluster, tier, tasks, choice, count)
    else:
        rack = first_rack_that_holds(fleet, needs, cluster, tier, tasks)
    if rack != NONE:
        return pack_rack(fleet, needs, rack, tier, tasks, most_room_first, choice, count)
    if room_in_cluster(fleet, needs, cluster, tier, tasks, choice.rack_room) < tasks:
        return NONE
    return pack_racks(fleet, needs, cluster, tier, tasks, most_room_first, choice, count)


@compiled
def choose_machines(
    fleet: FleetArrays, needs: Needs, tiers: int, request: Request, cluster: int, choice: Choice
) -> int:
    """Fills the choice with machines for all tasks; the number of machines, or NONE exactly when there is no room."""
    for resource in range(RESOURCES):
        if needs.least[resource] == MUCH or (
            fleet.clusters.idle[cluster, resource] < request.tasks * needs.least[resource]
        ):
            return NONE
    count = choose_in_tier(fleet, needs, request, cluster, PREFERRED, request.tasks, choice, 0)
    if count != NONE or tiers == 1:
        return count
    # No room for all on machines without GPUs: fill those, the rest goes to machines with GPUs.
    count = 0
    remaining = request.tasks
    for rack in range(fleet.clusters.first_rack[cluster], fleet.clusters.first_rack[cluster + 1]):
        if choice.rack_room[rack] > 0:
            remaining -= choice.rack_room[rack]
            count = take_rack_whole(fleet, needs, rack, PREFERRED, request.tasks, choice, count)
    return choose_in_tier(fleet, needs, request, cluster, LAST_RESORT, remaining, choice, count)
