"""How many tasks fit: on a machine, in a rack, in the cluster, from what is free now. The only count of that."""

from __future__ import annotations

from cluster_manager.capacity.tables import (
    FIRST_MACHINE,
    GREATEST,
    IN_SERVICE,
    MIXED,
    NO_WORK,
    RACK_SHAPE,
    RESOURCES,
    UNTOUCHED,
    WORKS_AS,
    ClusterArrays,
    Integers,
)
from cluster_manager.capacity.task_kinds import TIER, WHEN_EMPTY, Needs
from kernels.compiled import compiled, compiled_part


@compiled_part
def works_in_tier(cluster: ClusterArrays, needs: Needs, machine: int, tier: int) -> bool:
    """Whether the machine takes work and is of this tier."""
    shape = cluster.state[machine, WORKS_AS]
    return bool(shape != NO_WORK and needs.table[shape, TIER] == tier)


@compiled_part
def tasks_on(cluster: ClusterArrays, table: Integers, machine: int, most: int) -> int:
    """How many tasks of these needs a machine that takes work has capacity for, at most `most` and where it fits."""
    shape = cluster.state[machine, WORKS_AS]
    tasks = min(most, table[shape, WHEN_EMPTY])
    for resource in range(RESOURCES):
        need = table[shape, resource]
        if need > 0:
            free = cluster.state[machine, resource]
            if free < need:
                return 0
            tasks = min(tasks, int(free / need))
    return int(tasks)


@compiled_part
def rack_may_hold(cluster: ClusterArrays, needs: Needs, rack: int, tier: int) -> bool:
    """False when the summaries already show that no machine of the rack has room for one task."""
    shape = cluster.racks[rack, RACK_SHAPE]
    if shape != MIXED and needs.table[shape, TIER] != tier:
        return False
    for resource in range(RESOURCES):
        least = needs.least[resource] if shape == MIXED else needs.table[shape, resource]
        if cluster.rack_free[rack, GREATEST + resource] < least:
            return False
    return True


@compiled_part
def rack_is_whole(cluster: ClusterArrays, rack: int) -> bool:
    """Whether all machines of the rack are of one shape, take work, and hold nothing."""
    machines = cluster.racks[rack + 1, FIRST_MACHINE] - cluster.racks[rack, FIRST_MACHINE]
    return bool(cluster.racks[rack, RACK_SHAPE] != MIXED and cluster.rack_free[rack, UNTOUCHED] == machines)


@compiled_part
def tasks_in_rack(cluster: ClusterArrays, needs: Needs, rack: int, tier: int, most: int) -> int:
    """How many tasks the rack's machines of this tier have room for, each counted up to `most`."""
    if not rack_may_hold(cluster, needs, rack, tier):
        return 0
    first = cluster.racks[rack, FIRST_MACHINE]
    end = cluster.racks[rack + 1, FIRST_MACHINE]
    if rack_is_whole(cluster, rack):
        return int((end - first) * min(needs.table[cluster.racks[rack, RACK_SHAPE], WHEN_EMPTY], most))
    room = 0
    for machine in range(first, end):
        if works_in_tier(cluster, needs, machine, tier):
            room += tasks_on(cluster, needs.table, machine, most)
    return room


@compiled_part
def tasks_in_cluster(cluster: ClusterArrays, needs: Needs, tier: int, most: int, rack_tasks: Integers) -> int:
    """How many tasks the cluster's machines of this tier have room for; fills `rack_tasks` for its racks."""
    room = 0
    for rack in range(len(cluster.rack_free)):
        rack_tasks[rack] = tasks_in_rack(cluster, needs, rack, tier, most)
        room += rack_tasks[rack]
    return room


@compiled
def free_and_in_service(totals: Integers, resource: int) -> tuple[int, int]:
    """What is free of the resource in all clusters together, and what there is, on machines that take work."""
    free = 0
    in_service = 0
    for cluster in range(len(totals)):
        free += totals[cluster, resource]
        in_service += totals[cluster, IN_SERVICE + resource]
    return free, in_service
