"""Kernels that charge machines and give back, keeping the summaries of racks and clusters true."""

from __future__ import annotations

from cluster_manager.compiled import compiled
from cluster_manager.machines import GPUS, RESOURCES, FleetArrays, Integers

NO_RACK = -1
ALL_FITS = -1
GPU_MISSING = 100
"""First of the codes by which `first_conflict` names a GPU: this plus its index."""
GPU_HELD = 200


@compiled
def refresh_greatest(fleet: FleetArrays, rack: int) -> None:
    """Finds anew the most that any one machine of the rack has free."""
    machines = fleet.machines
    greatest = fleet.racks.greatest
    for resource in range(RESOURCES):
        greatest[rack, resource] = 0
    for machine in range(fleet.racks.first_machine[rack], fleet.racks.first_machine[rack + 1]):
        if machines.takes_work[machine]:
            for resource in range(RESOURCES):
                greatest[rack, resource] = max(greatest[rack, resource], machines.free[machine, resource])


@compiled
def is_untouched(fleet: FleetArrays, machine: int) -> bool:
    """Whether the machine holds nothing (counted in what is free: a charge of nothing does not count)."""
    shape = fleet.machines.shape[machine]
    for resource in range(RESOURCES):
        if fleet.machines.free[machine, resource] != fleet.shapes.capacity[shape, resource]:
            return False
    return True


@compiled
def shift_free(fleet: FleetArrays, machine: int, amounts: Integers, sign: int) -> bool:
    """Charges a machine (sign 1) or gives back (sign -1), with all summaries but the rack's greatest when that shrank.

    Returns True in that case: then the rack's greatest must be refreshed before anybody reads it.
    """
    free = fleet.machines.free
    if not fleet.machines.takes_work[machine]:
        for resource in range(RESOURCES):
            free[machine, resource] -= sign * amounts[resource]
        return False
    rack = fleet.machines.rack[machine]
    cluster = fleet.machines.cluster[machine]
    stale = False
    if is_untouched(fleet, machine):
        fleet.racks.untouched[rack] -= 1
    for resource in range(RESOURCES):
        before = max(free[machine, resource], 0)
        free[machine, resource] -= sign * amounts[resource]
        after = max(free[machine, resource], 0)
        fleet.racks.idle[rack, resource] += after - before
        fleet.clusters.idle[cluster, resource] += after - before
        if after > fleet.racks.greatest[rack, resource]:
            fleet.racks.greatest[rack, resource] = after
        elif after < before and before == fleet.racks.greatest[rack, resource]:
            stale = True
    if is_untouched(fleet, machine):
        fleet.racks.untouched[rack] += 1
    return stale


@compiled
def shift_holders(fleet: FleetArrays, machine: int, gpu_bits: int, sign: int) -> None:
    """Counts the holders of these GPUs up (sign 1) or down (sign -1), and marks free whichever has none."""
    first = fleet.machines.first_gpu[machine]
    bits = gpu_bits
    gpu = 0
    while bits:
        if bits & 1:
            fleet.machines.holders[first + gpu] += sign
            if fleet.machines.holders[first + gpu] == 0:
                fleet.machines.free_gpus[machine] |= 1 << gpu
            else:
                fleet.machines.free_gpus[machine] &= ~(1 << gpu)
        bits >>= 1
        gpu += 1


@compiled
def charge(
    fleet: FleetArrays, machine_of: Integers, amounts: Integers, gpu_bits: Integers, first: int, end: int, sign: int
) -> None:
    """Charges entries [first, end) (sign 1) or gives them back (sign -1).

    An entry is a machine, an amount of each resource and the GPUs as bits; entries stand in machine order, so that
    each rack's greatest is refreshed once.
    """
    stale_rack = NO_RACK
    for entry in range(first, end):
        machine = machine_of[entry]
        rack = fleet.machines.rack[machine]
        if stale_rack not in (NO_RACK, rack):
            refresh_greatest(fleet, stale_rack)
            stale_rack = NO_RACK
        if shift_free(fleet, machine, amounts[entry], sign):
            stale_rack = rack
        if gpu_bits[entry]:
            shift_holders(fleet, machine, gpu_bits[entry], sign)
    if stale_rack != NO_RACK:
        refresh_greatest(fleet, stale_rack)


@compiled
def mark_leaving(
    fleet: FleetArrays, machine_of: Integers, amounts: Integers, gpu_bits: Integers, first: int, end: int, sign: int
) -> None:
    """Counts charged entries among those that are leaving (sign 1), or no longer (sign -1)."""
    for entry in range(first, end):
        machine = machine_of[entry]
        for resource in range(RESOURCES):
            fleet.machines.leaving[machine, resource] += sign * amounts[entry, resource]
        bits = gpu_bits[entry]
        gpu = fleet.machines.first_gpu[machine]
        while bits:
            if bits & 1:
                fleet.machines.leaving_holders[gpu] += sign
            bits >>= 1
            gpu += 1


@compiled
def first_conflict(
    fleet: FleetArrays, machine_of: Integers, amounts: Integers, gpu_bits: Integers, first: int, end: int
) -> tuple[int, int]:
    """The first of the uncharged entries that would over-commit its machine once all that are leaving have left.

    Returns (entry, what): what is the resource, or GPU_MISSING or GPU_HELD plus the index of a GPU that does not
    exist or is held by one that stays; (ALL_FITS, 0) when there is none.
    """
    for entry in range(first, end):
        machine = machine_of[entry]
        for resource in range(RESOURCES):
            available = fleet.machines.free[machine, resource] + fleet.machines.leaving[machine, resource]
            if amounts[entry, resource] > 0 and amounts[entry, resource] > available:
                return entry, resource
        first_gpu = fleet.machines.first_gpu[machine]
        exist = fleet.machines.first_gpu[machine + 1] - first_gpu
        bits = gpu_bits[entry]
        gpu = 0
        while bits:
            if bits & 1:
                if gpu >= exist:
                    return entry, GPU_MISSING + gpu
                if fleet.machines.holders[first_gpu + gpu] > fleet.machines.leaving_holders[first_gpu + gpu]:
                    return entry, GPU_HELD + gpu
            bits >>= 1
            gpu += 1
    return ALL_FITS, 0


@compiled
def switch_work(fleet: FleetArrays, machine: int, takes_work: bool) -> None:
    """Lets the machine take work from now on, or no longer; what it holds stays charged."""
    if fleet.machines.takes_work[machine] == takes_work:
        return
    rack = fleet.machines.rack[machine]
    cluster = fleet.machines.cluster[machine]
    shape = fleet.machines.shape[machine]
    sign = 1 if takes_work else -1
    fleet.machines.takes_work[machine] = takes_work
    for resource in range(RESOURCES):
        idle = max(fleet.machines.free[machine, resource], 0)
        fleet.racks.idle[rack, resource] += sign * idle
        fleet.clusters.idle[cluster, resource] += sign * idle
        fleet.clusters.in_service[cluster, resource] += sign * fleet.shapes.capacity[shape, resource]
    if is_untouched(fleet, machine):
        fleet.racks.untouched[rack] += sign
    refresh_greatest(fleet, rack)


@compiled
def lowest_gpus(free_gpus: int, gpus: int) -> int:
    """The lowest `gpus` of the bits that are set; all of them when there are fewer."""
    bits = free_gpus
    chosen = 0
    for _ in range(gpus):
        lowest = bits & -bits
        chosen |= lowest
        bits ^= lowest
    return chosen


@compiled
def hand_out(
    fleet: FleetArrays,
    need: Integers,
    machine_of: Integers,
    tasks_on: Integers,
    amounts: Integers,
    gpu_bits: Integers,
    task_gpu_bits: Integers,
) -> None:
    """Turns a place (machines, and how many tasks on each) into entries to charge, task by task.

    `need` is what one task takes on each of the machines. Fills `amounts` and `gpu_bits` per machine, and per task, in
    machine order, the bits of the very GPUs it gets: the lowest that nobody holds.
    """
    task = 0
    for entry in range(len(machine_of)):
        for resource in range(RESOURCES):
            amounts[entry, resource] = need[entry, resource] * tasks_on[entry]
        free_gpus = fleet.machines.free_gpus[machine_of[entry]]
        gpu_bits[entry] = 0
        for _ in range(tasks_on[entry]):
            chosen = lowest_gpus(free_gpus, need[entry, GPUS])
            task_gpu_bits[task] = chosen
            gpu_bits[entry] |= chosen
            free_gpus &= ~chosen
            task += 1
