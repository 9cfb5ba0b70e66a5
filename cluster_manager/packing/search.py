"""Kernels that find the place of one job in one cluster, with its GPUs: the entries from Python into packing.

A call leaves the tables as they were.
"""

from __future__ import annotations

import numpy as np

from cluster_manager.capacity.attempts import AttemptArrays
from cluster_manager.capacity.charging import ENTRY_COLUMNS, GPU_BITS, MACHINE
from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, RESOURCES, SHAPE, ClusterArrays, Integers
from cluster_manager.capacity.task_kinds import LAST_RESORT, Needs
from cluster_manager.eviction.victims import charge_victims, choose_victims, room_now, take_back_all
from cluster_manager.kernel_scratch import CANDIDATE_ROW, Choice, KernelScratch, Newcomer, new_kernel_scratch
from cluster_manager.kernels.compiled import compiled, compiled_part, constant
from cluster_manager.mechanism import TASK_COLUMNS, TASK_GPU_BITS, TASK_MACHINE, TASK_MEBIBYTES, TASK_MILLICPUS
from cluster_manager.packing.best_fit import choose_machines
from cluster_manager.packing.gpu_choice import lowest_gpus
from cluster_manager.packing.locality_score import fragmentation_of, sort_choice, spread_of

# How a search ends.
NO_PLACE = constant(0)
PLACE = constant(1)
PLACE_ON_LAST_RESORT = constant(2)


@compiled_part
def hand_out(cluster: ClusterArrays, needs: Needs, choice: Choice, tasks: Integers, entries: Integers) -> None:
    """Fills in what each task gets, in machine order, the lowest free GPUs first, and the entries to charge."""
    task = 0
    for position in range(len(entries)):
        machine = choice.machine[position]
        number = choice.tasks[position]
        shape = cluster.fixed[machine, SHAPE]
        free_gpus = cluster.free_gpus[machine]
        entries[position, MACHINE] = machine
        entries[position, GPU_BITS] = 0
        for resource in range(RESOURCES):
            entries[position, resource] = needs.table[shape, resource] * number
        for _ in range(number):
            gpus = lowest_gpus(free_gpus, needs.table[shape, GPUS])
            free_gpus ^= gpus
            entries[position, GPU_BITS] |= gpus
            tasks[task, TASK_MACHINE] = machine
            tasks[task, TASK_MILLICPUS] = needs.table[shape, MILLICPUS]
            tasks[task, TASK_MEBIBYTES] = needs.table[shape, MEBIBYTES]
            tasks[task, TASK_GPU_BITS] = gpus
            task += 1


@compiled
def result_of(
    cluster: ClusterArrays, newcomer: Newcomer, found: int, room: int, victims: int, space: KernelScratch
) -> tuple[int, int, int, float, Integers, Integers, Integers]:
    """What a search returns: how it ended, the room, spread, fragmentation, tasks, entries, rows of the victims."""
    spread = 0
    fragmentation = 0.0
    tasks = np.empty((newcomer.tasks if found != NO_PLACE else 0, TASK_COLUMNS), np.int64)
    entries = np.empty((space.choice.length[0] if found != NO_PLACE else 0, ENTRY_COLUMNS), np.int64)
    rows = np.empty(victims, np.int64)
    if found != NO_PLACE:
        sort_choice(space.choice, space)
        spread = spread_of(cluster, newcomer, space.choice)
        fragmentation = fragmentation_of(cluster, newcomer, space.choice)
        hand_out(cluster, newcomer.needs, space.choice, tasks, entries)
        for position in range(victims):
            rows[position] = space.candidates[space.victims[position], CANDIDATE_ROW]
    return found, room, spread, fragmentation, tasks, entries, rows


@compiled
def find_free_place(
    cluster: ClusterArrays, attempts: AttemptArrays, newcomer: Newcomer
) -> tuple[int, int, int, float, Integers, Integers, Integers]:
    """The place that evicts no attempt: see `result_of`. NO_PLACE is exact; the room is not counted."""
    space = new_kernel_scratch(cluster, attempts, newcomer.tasks, False)
    found = PLACE if choose_machines(cluster, newcomer, space) else NO_PLACE
    return result_of(cluster, newcomer, found, 0, 0, space)


@compiled
def find_place_evicting(
    cluster: ClusterArrays, attempts: AttemptArrays, newcomer: Newcomer
) -> tuple[int, int, int, float, Integers, Integers, Integers]:
    """The place that evicts what it must: see `result_of`.

    NO_PLACE is exact: then the room says for how many tasks there is capacity, all evicted that may be.
    """
    space = new_kernel_scratch(cluster, attempts, newcomer.tasks, True)
    room = room_now(cluster, newcomer, space)
    if room >= newcomer.tasks:
        choose_machines(cluster, newcomer, space)
        return result_of(cluster, newcomer, PLACE, room, 0, space)
    scanned, victims, room, tier = choose_victims(cluster, newcomer, attempts, room, space)
    if room < newcomer.tasks:
        take_back_all(cluster, newcomer, attempts, scanned, space)
        return result_of(cluster, newcomer, NO_PLACE, room, 0, space)
    charge_victims(cluster, attempts, victims, -1, space)
    choose_machines(cluster, newcomer, space)
    found = PLACE_ON_LAST_RESORT if tier == LAST_RESORT else PLACE
    result = result_of(cluster, newcomer, found, room, victims, space)
    charge_victims(cluster, attempts, victims, 1, space)
    return result
