"""Kernels that charge machines and give back, keeping the summaries of racks and clusters true.

What is charged comes as a table of entries: what one attempt holds on one machine is an entry. An attempt's entries
are contiguous and in machine order.
"""

from __future__ import annotations

from cluster_manager.capacity.machines import (
    ALL_HOLDERS,
    CLUSTER,
    FIRST_GPU,
    FIRST_MACHINE,
    GPUS,
    GREATEST,
    IN_SERVICE,
    LEAVING_HOLDERS,
    NO_WORK,
    RACK,
    RESOURCES,
    SHAPE,
    UNTOUCHED,
    WORKS_AS,
    FleetArrays,
    Integers,
)
from cluster_manager.kernels.compiled import compiled, compiled_part, constant

# More columns of a table of entries, behind the amounts.
MACHINE = 3
GPU_BITS = 4
CLUSTER_END = 5
"""The attempt's first entry after this one that is in another cluster, or where its entries end."""
ROW = 6
"""The attempt; NOBODY where nothing is stored."""
ENTRY_COLUMNS = 7

NO_RACK = constant(-1)
CHARGE = constant(1)
GIVE_BACK = constant(-1)
FIRST = constant(0)
ALL_FITS = -1
GPU_MISSING = 100
"""First of the codes by which `first_conflict` names a GPU: this plus its index."""
GPU_HELD = 200


@compiled_part
def refresh_greatest(fleet: FleetArrays, rack: int) -> None:
    """Finds anew the most that any one machine of the rack has free."""
    for resource in range(RESOURCES):
        greatest = 0
        for machine in range(fleet.racks[rack, FIRST_MACHINE], fleet.racks[rack + 1, FIRST_MACHINE]):
            if fleet.state[machine, WORKS_AS] != NO_WORK:
                greatest = max(greatest, fleet.state[machine, resource])
        fleet.rack_room[rack, GREATEST + resource] = greatest


@compiled_part
def is_untouched(fleet: FleetArrays, machine: int) -> bool:
    """Whether nothing is charged to the machine (charges of nothing do not count)."""
    shape = fleet.fixed[machine, SHAPE]
    untouched = True
    for resource in range(RESOURCES):
        untouched = untouched and fleet.state[machine, resource] == fleet.shapes[shape, resource]
    return untouched


@compiled_part
def shift_free(fleet: FleetArrays, entries: Integers, entry: int, sign: int) -> bool:
    """Charges a machine (sign 1) or gives back (sign -1), with all summaries but the rack's greatest if that shrank.

    Returns True in that case: then the rack's greatest must be refreshed before anybody reads it.
    """
    machine = entries[entry, MACHINE]
    if fleet.state[machine, WORKS_AS] == NO_WORK:
        for resource in range(RESOURCES):
            fleet.state[machine, resource] -= sign * entries[entry, resource]
        return False
    rack = fleet.fixed[machine, RACK]
    cluster = fleet.fixed[machine, CLUSTER]
    stale = False
    if is_untouched(fleet, machine):
        fleet.rack_room[rack, UNTOUCHED] -= 1
    for resource in range(RESOURCES):
        before = max(fleet.state[machine, resource], 0)
        fleet.state[machine, resource] -= sign * entries[entry, resource]
        after = max(fleet.state[machine, resource], 0)
        fleet.rack_room[rack, resource] += after - before
        fleet.cluster_room[cluster, resource] += after - before
        greatest = fleet.rack_room[rack, GREATEST + resource]
        if after > greatest:
            fleet.rack_room[rack, GREATEST + resource] = after
        elif after < before and before == greatest:
            stale = True
    if is_untouched(fleet, machine):
        fleet.rack_room[rack, UNTOUCHED] += 1
    return stale


@compiled_part
def shift_holders(fleet: FleetArrays, machine: int, gpu_bits: int, sign: int) -> None:
    """Counts the holders of these GPUs up (sign 1) or down (sign -1), and marks free whichever has none."""
    first = fleet.fixed[machine, FIRST_GPU]
    bits = gpu_bits
    gpu = 0
    while bits:
        if bits & 1:
            fleet.holders[first + gpu, ALL_HOLDERS] += sign
            if fleet.holders[first + gpu, ALL_HOLDERS] == 0:
                fleet.free_gpus[machine] |= 1 << gpu
            else:
                fleet.free_gpus[machine] &= ~(1 << gpu)
        bits >>= 1
        gpu += 1


@compiled_part
def charge(fleet: FleetArrays, entries: Integers, first: int, end: int, sign: int) -> None:
    """Charges entries [first, end) (sign 1) or gives them back (sign -1)."""
    stale_rack = NO_RACK
    for entry in range(first, end):
        machine = entries[entry, MACHINE]
        rack = fleet.fixed[machine, RACK]
        # Entries stand in machine order, so each rack's greatest is refreshed once.
        if stale_rack not in (NO_RACK, rack):
            refresh_greatest(fleet, stale_rack)
            stale_rack = NO_RACK
        if shift_free(fleet, entries, entry, sign):
            stale_rack = rack
        if entries[entry, GPU_BITS]:
            shift_holders(fleet, machine, entries[entry, GPU_BITS], sign)
    if stale_rack != NO_RACK:
        refresh_greatest(fleet, stale_rack)


@compiled
def mark_leaving(fleet: FleetArrays, entries: Integers, sign: int) -> None:
    """Counts all entries of the table, which are charged, among those that are leaving (sign 1), or no longer (sign -1)."""
    for entry in range(len(entries)):
        machine = entries[entry, MACHINE]
        for resource in range(RESOURCES):
            fleet.leaving[machine, resource] += sign * entries[entry, resource]
        bits = entries[entry, GPU_BITS]
        gpu = fleet.fixed[machine, FIRST_GPU]
        while bits:
            if bits & 1:
                fleet.holders[gpu, LEAVING_HOLDERS] += sign
            bits >>= 1
            gpu += 1


@compiled
def first_conflict(fleet: FleetArrays, entries: Integers) -> tuple[int, int]:
    """The first of these entries, which are not charged, that would over-commit its machine once all that are leaving have left.

    Returns (entry, what): what is the resource, or GPU_MISSING or GPU_HELD plus the index of a GPU that does not
    exist or is held by one that stays; (ALL_FITS, 0) when there is none.
    """
    for entry in range(len(entries)):
        machine = entries[entry, MACHINE]
        for resource in range(RESOURCES):
            available = fleet.state[machine, resource] + fleet.leaving[machine, resource]
            if entries[entry, resource] > 0 and entries[entry, resource] > available:
                return entry, resource
        first_gpu = fleet.fixed[machine, FIRST_GPU]
        exist = fleet.shapes[fleet.fixed[machine, SHAPE], GPUS]
        bits = entries[entry, GPU_BITS]
        gpu = 0
        while bits:
            if bits & 1:
                if gpu >= exist:
                    return entry, GPU_MISSING + gpu
                if fleet.holders[first_gpu + gpu, ALL_HOLDERS] > fleet.holders[first_gpu + gpu, LEAVING_HOLDERS]:
                    return entry, GPU_HELD + gpu
            bits >>= 1
            gpu += 1
    return ALL_FITS, 0


@compiled
def switch_work(fleet: FleetArrays, machine: int, takes_work: bool) -> None:
    """Lets the machine take work from now on, or no longer; what it holds stays charged."""
    if (fleet.state[machine, WORKS_AS] != NO_WORK) == takes_work:
        return
    rack = fleet.fixed[machine, RACK]
    cluster = fleet.fixed[machine, CLUSTER]
    shape = fleet.fixed[machine, SHAPE]
    sign = 1 if takes_work else -1
    fleet.state[machine, WORKS_AS] = shape if takes_work else NO_WORK
    for resource in range(RESOURCES):
        idle = max(fleet.state[machine, resource], 0)
        fleet.rack_room[rack, resource] += sign * idle
        fleet.cluster_room[cluster, resource] += sign * idle
        fleet.cluster_room[cluster, IN_SERVICE + resource] += sign * fleet.shapes[shape, resource]
    if is_untouched(fleet, machine):
        fleet.rack_room[rack, UNTOUCHED] += sign
    refresh_greatest(fleet, rack)


@compiled_part
def lowest_gpus(free_gpus: int, gpus: int) -> int:
    """The lowest `gpus` of the bits that are set; all of them when there are fewer."""
    bits = free_gpus
    chosen = 0
    for _ in range(gpus):
        lowest = bits & -bits
        chosen |= lowest
        bits ^= lowest
    return chosen
