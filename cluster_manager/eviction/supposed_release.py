"""Kernels that suppose capacity to be released: they change what is free on machines, but no summary."""

from __future__ import annotations

from cluster_manager.capacity.charging import MACHINE
from cluster_manager.capacity.fitting import tasks_on
from cluster_manager.capacity.tables import NO_WORK, RESOURCES, WORKS_AS, ClusterArrays, Integers
from cluster_manager.capacity.task_kinds import LAST_RESORT, PREFERRED, TIER, UNFIT, Needs
from kernels.compiled import compiled_part, constant

BOTH_TIERS = constant(1 << PREFERRED | 1 << LAST_RESORT)
RELEASE = constant(1)
TAKE_BACK = constant(-1)


@compiled_part
def suppose_released(
    cluster: ClusterArrays, needs: Needs, most: int, entries: Integers, first: int, end: int, tiers: int, sign: int
) -> tuple[int, int]:
    """Adds to what is free (sign 1; -1 takes it away) the entries on machines of these tiers. Summaries stay as they are.

    Returns the change in the number of tasks that find room, and how many entries there were.
    """
    change = 0
    touched = 0
    for entry in range(first, end):
        machine = entries[entry, MACHINE]
        shape = cluster.state[machine, WORKS_AS]
        if shape == NO_WORK or needs.table[shape, TIER] == UNFIT or not (tiers >> needs.table[shape, TIER]) & 1:
            continue
        touched += 1
        if sign > 0:
            for resource in range(RESOURCES):
                cluster.state[machine, resource] += entries[entry, resource]
        room_with = tasks_on(cluster, needs.table, machine, most)
        for resource in range(RESOURCES):
            cluster.state[machine, resource] -= entries[entry, resource]
        # Where there is no room with the release, there was none without.
        if room_with > 0:
            change += sign * (room_with - tasks_on(cluster, needs.table, machine, most))
        if sign > 0:
            for resource in range(RESOURCES):
                cluster.state[machine, resource] += entries[entry, resource]
    return change, touched
