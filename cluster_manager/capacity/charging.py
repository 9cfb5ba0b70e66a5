"""Kernels that charge machines and give back, keeping the summaries of the racks and the cluster true.

What is charged comes as a table of entries: what one attempt holds on one machine is an entry. An attempt's entries
are contiguous and in machine order.
"""

from __future__ import annotations

import numpy as np

from cluster_manager.capacity.tables import (
    ALL_HOLDERS,
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
    ClusterArrays,
    Integers,
)
from kernels.compiled import compiled, compiled_part, constant

# More columns of a table of entries, behind the amounts.
MACHINE = 3
GPU_BITS = 4
ROW = 5
"""The attempt; NO_ATTEMPT where nothing is stored."""
ENTRY_COLUMNS = 6
NO_ENTRIES: Integers = np.empty((0, ENTRY_COLUMNS), np.int64)

NO_RACK = constant(-1)
CHARGE = constant(1)
GIVE_BACK = constant(-1)
FIRST = constant(0)
ALL_FITS = -1
GPU_MISSING = 100
"""First of the codes by which `first_conflict` names a GPU: this plus its index."""
GPU_HELD = 200


@compiled_part
def refresh_greatest(cluster: ClusterArrays, rack: int) -> None:
    """Finds anew the most that any one machine of the rack has free."""
    for resource in range(RESOURCES):
        greatest = 0
        for machine in range(cluster.racks[rack, FIRST_MACHINE], cluster.racks[rack + 1, FIRST_MACHINE]):
            if cluster.state[machine, WORKS_AS] != NO_WORK:
                greatest = max(greatest, cluster.state[machine, resource])
        cluster.rack_free[rack, GREATEST + resource] = greatest


@compiled_part
def is_untouched(cluster: ClusterArrays, machine: int) -> bool:
    """Whether nothing is charged to the machine (charges of nothing do not count)."""
    shape = cluster.fixed[machine, SHAPE]
    untouched = True
    for resource in range(RESOURCES):
        untouched = untouched and cluster.state[machine, resource] == cluster.shapes[shape, resource]
    return untouched


@compiled_part
def shift_free(cluster: ClusterArrays, entries: Integers, entry: int, sign: int) -> bool:
    """Charges a machine (sign 1) or gives back (sign -1), with all summaries but the rack's greatest if that shrank.

    Returns True in that case: then the rack's greatest must be refreshed before it is read.
    """
    machine = entries[entry, MACHINE]
    if cluster.state[machine, WORKS_AS] == NO_WORK:
        for resource in range(RESOURCES):
            cluster.state[machine, resource] -= sign * entries[entry, resource]
        return False
    rack = cluster.fixed[machine, RACK]
    stale = False
    if is_untouched(cluster, machine):
        cluster.rack_free[rack, UNTOUCHED] -= 1
    for resource in range(RESOURCES):
        before = max(cluster.state[machine, resource], 0)
        cluster.state[machine, resource] -= sign * entries[entry, resource]
        after = max(cluster.state[machine, resource], 0)
        cluster.rack_free[rack, resource] += after - before
        cluster.totals[resource] += after - before
        greatest = cluster.rack_free[rack, GREATEST + resource]
        if after > greatest:
            cluster.rack_free[rack, GREATEST + resource] = after
        elif after < before and before == greatest:
            stale = True
    if is_untouched(cluster, machine):
        cluster.rack_free[rack, UNTOUCHED] += 1
    return stale


@compiled_part
def shift_holders(cluster: ClusterArrays, machine: int, gpu_bits: int, sign: int) -> None:
    """Counts the holders of these GPUs up (sign 1) or down (sign -1), and marks free whichever has none."""
    first = cluster.fixed[machine, FIRST_GPU]
    bits = gpu_bits
    gpu = 0
    while bits:
        if bits & 1:
            cluster.holders[first + gpu, ALL_HOLDERS] += sign
            if cluster.holders[first + gpu, ALL_HOLDERS] == 0:
                cluster.free_gpus[machine] |= 1 << gpu
            else:
                cluster.free_gpus[machine] &= ~(1 << gpu)
        bits >>= 1
        gpu += 1


@compiled_part
def charge(cluster: ClusterArrays, entries: Integers, first: int, end: int, sign: int) -> None:
    """Charges entries [first, end) (sign 1) or gives them back (sign -1)."""
    stale_rack = NO_RACK
    for entry in range(first, end):
        machine = entries[entry, MACHINE]
        rack = cluster.fixed[machine, RACK]
        # Entries stand in machine order, so each rack's greatest is refreshed once.
        if stale_rack not in (NO_RACK, rack):
            refresh_greatest(cluster, stale_rack)
            stale_rack = NO_RACK
        if shift_free(cluster, entries, entry, sign):
            stale_rack = rack
        if entries[entry, GPU_BITS]:
            shift_holders(cluster, machine, entries[entry, GPU_BITS], sign)
    if stale_rack != NO_RACK:
        refresh_greatest(cluster, stale_rack)


@compiled
def mark_leaving(cluster: ClusterArrays, entries: Integers, sign: int) -> None:
    """Counts all entries of the table, which are charged, among those that are leaving (sign 1), or no longer (sign -1)."""
    for entry in range(len(entries)):
        machine = entries[entry, MACHINE]
        for resource in range(RESOURCES):
            cluster.leaving[machine, resource] += sign * entries[entry, resource]
        bits = entries[entry, GPU_BITS]
        gpu = cluster.fixed[machine, FIRST_GPU]
        while bits:
            if bits & 1:
                cluster.holders[gpu, LEAVING_HOLDERS] += sign
            bits >>= 1
            gpu += 1


@compiled
def first_conflict(cluster: ClusterArrays, entries: Integers) -> tuple[int, int]:
    """The first of these entries, which are not charged, that would over-commit its machine once all that are leaving have left.

    Returns (entry, what): what is the resource, or GPU_MISSING or GPU_HELD plus the index of a GPU that does not
    exist or is held by one that stays; (ALL_FITS, 0) when there is none.
    """
    for entry in range(len(entries)):
        machine = entries[entry, MACHINE]
        for resource in range(RESOURCES):
            available = cluster.state[machine, resource] + cluster.leaving[machine, resource]
            if entries[entry, resource] > 0 and entries[entry, resource] > available:
                return entry, resource
        first_gpu = cluster.fixed[machine, FIRST_GPU]
        exist = cluster.shapes[cluster.fixed[machine, SHAPE], GPUS]
        bits = entries[entry, GPU_BITS]
        gpu = 0
        while bits:
            if bits & 1:
                if gpu >= exist:
                    return entry, GPU_MISSING + gpu
                if cluster.holders[first_gpu + gpu, ALL_HOLDERS] > cluster.holders[first_gpu + gpu, LEAVING_HOLDERS]:
                    return entry, GPU_HELD + gpu
            bits >>= 1
            gpu += 1
    return ALL_FITS, 0


@compiled
def switch_work(cluster: ClusterArrays, machine: int, takes_work: bool) -> None:
    """Lets the machine take work from now on, or no longer; what it holds stays charged."""
    if (cluster.state[machine, WORKS_AS] != NO_WORK) == takes_work:
        return
    rack = cluster.fixed[machine, RACK]
    shape = cluster.fixed[machine, SHAPE]
    sign = 1 if takes_work else -1
    cluster.state[machine, WORKS_AS] = shape if takes_work else NO_WORK
    for resource in range(RESOURCES):
        idle = max(cluster.state[machine, resource], 0)
        cluster.rack_free[rack, resource] += sign * idle
        cluster.totals[resource] += sign * idle
        cluster.totals[IN_SERVICE + resource] += sign * cluster.shapes[shape, resource]
    if is_untouched(cluster, machine):
        cluster.rack_free[rack, UNTOUCHED] += sign
    refresh_greatest(cluster, rack)
