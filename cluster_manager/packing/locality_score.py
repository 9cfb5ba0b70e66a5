"""Kernels for the locality part of a plan's score: spread and fragmentation of one job's place."""

from __future__ import annotations

from cluster_manager.capacity.tables import GPUS, MILLICPUS, RACK, SHAPE, ClusterArrays
from cluster_manager.kernel_scratch import Choice, KernelScratch, Newcomer
from cluster_manager.kernels.sorting import put_in_stable_order
from kernels.compiled import compiled_part

RACK_WEIGHT = 1_000_000
"""Of a rack in the spread: more than any number of machines, so that racks count first."""


@compiled_part
def sort_choice(choice: Choice, space: KernelScratch) -> None:
    """Puts the chosen machines into machine order."""
    count = choice.length[0]
    in_order = True
    for position in range(1, count):
        in_order = in_order and choice.machine[position - 1] < choice.machine[position]
    if in_order:
        return
    put_in_stable_order(choice.machine, count, space.order, space.spare)
    for position in range(count):
        space.key[position] = choice.machine[space.order[position]]
        space.spare[position] = choice.tasks[space.order[position]]
    for position in range(count):
        choice.machine[position] = space.key[position]
        choice.tasks[position] = space.spare[position]


@compiled_part
def spread_of(cluster: ClusterArrays, newcomer: Newcomer, choice: Choice) -> int:
    """For a job to be consolidated: RACK_WEIGHT for every rack beyond one, 1 for every machine beyond one; else 0.

    The machines must be in machine order.
    """
    if not newcomer.consolidate:
        return 0
    racks = 1
    for position in range(1, choice.length[0]):
        if cluster.fixed[choice.machine[position], RACK] != cluster.fixed[choice.machine[position - 1], RACK]:
            racks += 1
    return int((racks - 1) * RACK_WEIGHT + choice.length[0] - 1)


@compiled_part
def fragmentation_of(cluster: ClusterArrays, newcomer: Newcomer, choice: Choice) -> float:
    """What the place would leave in pieces; nothing of it is charged yet.

    For a job with GPUs: the GPUs left idle on the machines that it uses. For a job without: the share of CPUs left
    idle on the machines that it uses, on average over them, in whole millionths (below 1, or 1 when it takes none),
    plus all GPUs of the machines with GPUs among them (at least 1 each).
    """
    gpus = 0
    millionths = 0
    count = choice.length[0]
    for position in range(count):
        machine = choice.machine[position]
        shape = cluster.fixed[machine, SHAPE]
        tasks = choice.tasks[position]
        if newcomer.gpus > 0:
            gpus += cluster.state[machine, GPUS] - tasks * newcomer.gpus
            continue
        gpus += cluster.shapes[shape, GPUS]
        capacity = cluster.shapes[shape, MILLICPUS]
        if capacity > 0:
            left = cluster.state[machine, MILLICPUS] - tasks * newcomer.needs.table[shape, MILLICPUS]
            # Integers, so that the order of the machines cannot show in the last digits.
            millionths += max(left, 0) * 1_000_000 // capacity
    return float(gpus + millionths // count / 1_000_000)
