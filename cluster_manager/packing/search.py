"""Kernels that find the best place of one job in some clusters, with its GPUs: the entries from Python into packing.

One call asks them all: it enters once, allocates once, and looks no further where another cluster is better already. A
call leaves the tables as they were.
"""

from __future__ import annotations

import numpy as np

from cluster_manager.capacity.attempts import PRIORITY, AttemptArrays
from cluster_manager.capacity.charging import CHARGE, ENTRY_COLUMNS, GIVE_BACK, GPU_BITS, MACHINE, ROW
from cluster_manager.capacity.cluster_tables import TablesOfClusters
from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, RESOURCES, SHAPE, ClusterArrays, Integers, Reals
from cluster_manager.capacity.task_kinds import LAST_RESORT, PREFERRED, Needs
from cluster_manager.eviction.least_work import MOST_STEPS, cost_of
from cluster_manager.eviction.side_by_side import (
    END_CANDIDATE,
    FIRST_CANDIDATE,
    ROOM,
    SCAN_COLUMNS,
    SCANNED,
    VICTIMS,
    begin_scans,
    scan_side_by_side,
)
from cluster_manager.eviction.victims import charge_victims, choose_victims, take_back_all
from cluster_manager.kernel_scratch import (
    CANDIDATE_ROW,
    Choice,
    KernelScratch,
    Newcomer,
    ScratchSizes,
    new_choice,
    new_kernel_scratch,
    of_candidates,
)
from cluster_manager.mechanism import TASK_COLUMNS, TASK_GPU_BITS, TASK_MACHINE, TASK_MEBIBYTES, TASK_MILLICPUS
from cluster_manager.packing.best_fit import choose_machines
from cluster_manager.packing.gpu_choice import lowest_gpus
from cluster_manager.packing.locality_score import fragmentation_of, sort_choice, spread_of
from cluster_manager.place_rank import (
    BEST_PRIORITY,
    COUNTS,
    FRAGMENTATION,
    ON_LAST_RESORT,
    RANK_FIELDS,
    RUNNING_S,
    SPREAD,
    WORK,
    rank_comes_before,
)
from domain.rank import Standing
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from kernels.compiled import compiled, compiled_part, constant

NO_PLACE = constant(-1)
"""In place of a cluster's position."""

# Rows of a table of ranks.
TRIAL = constant(0)
BEST = constant(1)


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
        entries[position, ROW] = 0
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


@compiled_part
def rank_locality(cluster: ClusterArrays, newcomer: Newcomer, space: KernelScratch, ranks: Reals, index: int) -> None:
    """Fills in what the chosen machines, which it puts into machine order, add to the rank."""
    sort_choice(space.choice, space)
    ranks[index, SPREAD] = spread_of(cluster, newcomer, space.choice)
    ranks[index, FRAGMENTATION] = fragmentation_of(cluster, newcomer, space.choice)


@compiled_part
def rank_victims(
    attempts: AttemptArrays, newcomer: Newcomer, victims: int, tier: int, space: KernelScratch, ranks: Reals, index: int
) -> None:
    """Fills in what the victims make of the rank."""
    best_priority = LOWEST_PRIORITY + 1
    running_s = 0.0
    for field in range(SPREAD):
        ranks[index, field] = 0.0
    for position in range(victims):
        row = space.candidates[space.victims[position], CANDIDATE_ROW]
        priority = attempts.rows[row, PRIORITY]
        best_priority = min(best_priority, priority)
        running_s += max(newcomer.now_s - attempts.started_s[row], 0.0)
        ranks[index, COUNTS + priority] += 1.0
        if newcomer.spares_work:
            ranks[index, WORK + priority] += cost_of(attempts, row, newcomer)
    ranks[index, BEST_PRIORITY] = -best_priority
    ranks[index, ON_LAST_RESORT] = 1.0 if tier == LAST_RESORT else 0.0
    ranks[index, RUNNING_S] = 0.0 - running_s


@compiled_part
def keep_choice(choice: Choice, kept: Choice) -> None:
    """Copies a choice."""
    kept.length[0] = choice.length[0]
    for position in range(choice.length[0]):
        kept.machine[position] = choice.machine[position]
        kept.tasks[position] = choice.tasks[position]


@compiled
def sizes_of(
    tables: TablesOfClusters, positions: Integers, tasks: int, evicting: bool, spares_work: bool
) -> ScratchSizes:
    """How much space a search in these clusters needs."""
    machines = 0
    racks = 0
    largest_rack = 0
    attempts = 0
    all_attempts = 0
    for position in positions:
        cluster = tables[position]
        machines = max(machines, len(cluster.machines.state))
        racks = max(racks, len(cluster.machines.rack_free))
        largest_rack = max(largest_rack, cluster.machines.largest_rack)
        if evicting:
            attempts = max(attempts, cluster.attempts.live[0])
            all_attempts += cluster.attempts.live[0]
    work = attempts if spares_work else 0
    return ScratchSizes(min(machines, tasks), racks, largest_rack, attempts, all_attempts, work)


@compiled
def handed_out(cluster: ClusterArrays, newcomer: Newcomer, choice: Choice) -> tuple[Integers, Integers]:
    """The tasks and the entries of the chosen machines, which are in machine order."""
    tasks = np.empty((newcomer.tasks, TASK_COLUMNS), np.int64)
    entries = np.empty((choice.length[0], ENTRY_COLUMNS), np.int64)
    hand_out(cluster, newcomer.needs, choice, tasks, entries)
    return tasks, entries


@compiled
def free_newcomer(
    tasks: int, gpus: int, consolidate: bool, fills: bool, tiers: int, needs_table: Integers, least_needs: Integers
) -> Newcomer:
    """One that evicts no attempt: its standing and its time do not matter."""
    needs = Needs(needs_table, least_needs)
    return Newcomer(
        tasks,
        gpus,
        consolidate,
        tiers,
        needs,
        Standing(0, 0),
        0.0,
        HIGHEST_PRIORITY,
        False,
        fills and gpus > 0,
        False,
        0.0,
    )


@compiled
def find_free_place(
    tables: TablesOfClusters,
    positions: Integers,
    needs_table: Integers,
    least_needs: Integers,
    tasks_asked: int,
    gpus: int,
    consolidate: bool,
    fills: bool,
    tiers: int,
    least_spread: int,
) -> tuple[int, int, float, Integers, Integers]:
    """The best place in these clusters that evicts no attempt: position, spread, fragmentation, tasks, entries.

    The position is NO_PLACE exactly when there is none. No place has a spread less than `least_spread`. The newcomer is
    taken field by field: as one argument it would take longer to enter than most searches take.
    """
    newcomer = free_newcomer(tasks_asked, gpus, consolidate, fills, tiers, needs_table, least_needs)
    sizes = sizes_of(tables, positions, newcomer.tasks, False, False)
    space = new_kernel_scratch(sizes)
    kept = new_choice(sizes.machines)
    ranks = np.zeros((2, RANK_FIELDS), np.float64)
    best = NO_PLACE
    for position in positions:
        cluster = tables[position].machines
        if not choose_machines(cluster, newcomer, space):
            continue
        rank_locality(cluster, newcomer, space, ranks, TRIAL)
        if best == NO_PLACE or rank_comes_before(ranks[TRIAL], ranks[BEST], RANK_FIELDS):
            best = position
            ranks[BEST] = ranks[TRIAL]
            keep_choice(space.choice, kept)
            if ranks[BEST, SPREAD] <= least_spread and ranks[BEST, FRAGMENTATION] <= 0.0:
                break
    if best == NO_PLACE:
        return best, 0, 0.0, np.empty((0, TASK_COLUMNS), np.int64), np.empty((0, ENTRY_COLUMNS), np.int64)
    tasks, entries = handed_out(tables[best].machines, newcomer, kept)
    return best, int(ranks[BEST, SPREAD]), ranks[BEST, FRAGMENTATION], tasks, entries


@compiled
def choose_all_victims(
    tables: TablesOfClusters,
    positions: Integers,
    newcomer: Newcomer,
    tier: int,
    space: KernelScratch,
    scans: Integers,
    ranks: Reals,
) -> int:
    """Chooses the victims in every cluster that suffices, and ends what is supposed in all of them.

    Returns the first of those whose victims make the best rank, or NO_PLACE.
    """
    best = NO_PLACE
    suffice = 0
    for index in range(len(positions)):
        suffice += 1 if scans[index, ROOM] >= newcomer.tasks else 0
    steps = MOST_STEPS // max(suffice, 1)
    for index in range(len(positions)):
        cluster = tables[positions[index]]
        here = of_candidates(space, scans[index, FIRST_CANDIDATE], scans[index, END_CANDIDATE])
        room, scanned = scans[index, ROOM], scans[index, SCANNED]
        if room < newcomer.tasks:
            take_back_all(cluster.machines, newcomer, cluster.attempts, scanned, here)
            continue
        victims = choose_victims(cluster.machines, newcomer, cluster.attempts, scanned, room, here, steps)
        rank_victims(cluster.attempts, newcomer, victims, tier, here, ranks, index)
        scans[index, VICTIMS] = victims
        if best == NO_PLACE or rank_comes_before(ranks[index], ranks[best], SPREAD):
            best = index
    return int(best)


@compiled
def find_place_evicting(
    tables: TablesOfClusters, positions: Integers, newcomer: Newcomer, rooms: Integers
) -> tuple[int, bool, int, float, Integers, Integers, Integers]:
    """The best place in these clusters, evicting what it must: position, whether on machines of last resort, spread,
    fragmentation, tasks, entries, rows of the victims.

    The position is NO_PLACE exactly when there is none. Then `rooms` says for how many tasks there is capacity in each
    of them, all evicted that may be.
    """
    sizes = sizes_of(tables, positions, newcomer.tasks, True, newcomer.spares_work)
    space = new_kernel_scratch(sizes)
    scans = np.empty((len(positions), SCAN_COLUMNS), np.int64)
    ranks = np.zeros((len(positions), RANK_FIELDS), np.float64)
    tier = int(PREFERRED)
    if not begin_scans(tables, positions, newcomer, space, scans):
        tier = scan_side_by_side(tables, positions, newcomer, space, scans)
    first = choose_all_victims(tables, positions, newcomer, tier, space, scans, ranks)
    tasks = np.empty((0, TASK_COLUMNS), np.int64)
    entries = np.empty((0, ENTRY_COLUMNS), np.int64)
    rows = np.empty(0, np.int64)
    if first == NO_PLACE:
        for index in range(len(positions)):
            rooms[index] = scans[index, ROOM]
        return first, False, 0, 0.0, tasks, entries, rows
    best = NO_PLACE
    # Victims decide first, so machines are chosen only where nothing but the machines could decide.
    for index in range(first, len(positions)):
        if scans[index, ROOM] < newcomer.tasks or rank_comes_before(ranks[first], ranks[index], SPREAD):
            continue
        cluster, victims = tables[positions[index]], scans[index, VICTIMS]
        here = of_candidates(space, scans[index, FIRST_CANDIDATE], scans[index, END_CANDIDATE])
        charge_victims(cluster.machines, cluster.attempts, victims, GIVE_BACK, here)
        choose_machines(cluster.machines, newcomer, here)
        rank_locality(cluster.machines, newcomer, here, ranks, index)
        if best == NO_PLACE or rank_comes_before(ranks[index], ranks[best], RANK_FIELDS):
            best = index
            tasks, entries = handed_out(cluster.machines, newcomer, here.choice)
            rows = here.candidates[:, CANDIDATE_ROW][here.victims[:victims]]
        charge_victims(cluster.machines, cluster.attempts, victims, CHARGE, here)
    spread, fragmentation = int(ranks[best, SPREAD]), ranks[best, FRAGMENTATION]
    return positions[best], tier == LAST_RESORT, spread, fragmentation, tasks, entries, rows
