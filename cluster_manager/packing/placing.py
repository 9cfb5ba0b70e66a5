"""Places for several jobs one after the other, each with the earlier ones charged, in one kernel call.

A call leaves the arrays as they were. It costs a few microseconds to enter, which is why there is one for all jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster_manager.capacity.attempts import END_ENTRY, EVICTABLE, FIRST_ENTRY, AttemptArrays
from cluster_manager.capacity.charging import (
    CHARGE,
    ENTRY_COLUMNS,
    FIRST,
    GIVE_BACK,
    GPU_BITS,
    MACHINE,
    charge,
    lowest_gpus,
)
from cluster_manager.capacity.machines import (
    GPUS,
    IN_SERVICE,
    MEBIBYTES,
    MILLICPUS,
    RESOURCES,
    SHAPE,
    FleetArrays,
    Integers,
    Layout,
    Reals,
)
from cluster_manager.capacity.needs import Needs, new_needs, work_out_needs
from cluster_manager.capacity.requests import Request
from cluster_manager.kernel_scratch import (
    FRAGMENTATION,
    ROOM,
    SPREAD,
    Choice,
    KernelScratch,
    Newcomer,
    new_kernel_scratch,
)
from cluster_manager.kernels.compiled import compiled, compiled_part
from cluster_manager.packing.best_fit import NONE
from cluster_manager.packing.search import search
from domain.rank import Standing

ANYWHERE = -1
"""In place of a cluster: the whole region is searched."""

TABLES_REMEMBERED = 16_384
_ANYWHERE = np.full(8, ANYWHERE, np.int64)
_NOBODY = np.zeros(0, np.int64)

# Columns of the table of tasks.
TASK_MACHINE = 0
TASK_MILLICPUS = 1
TASK_MEBIBYTES = 2
TASK_GPU_BITS = 3
TASK_COLUMNS = 4

# Columns of the tables of jobs.
JOB_CLUSTER = 0
JOB_END_VICTIM = 1
"""Its victims are those from the end of the previous job's on."""
JOB_COLUMNS = 2
JOB_SPREAD = 0
JOB_FRAGMENTATION = 1
JOB_LOAD = 2
JOB_QUALITIES = 3


@dataclass(frozen=True, slots=True)
class Place:
    """Where one job would go. Tasks are numbered in machine order."""

    cluster: int
    tasks: Integers  # [task, TASK_MACHINE | TASK_MILLICPUS | TASK_MEBIBYTES | TASK_GPU_BITS]
    victims: tuple[int, ...]  # rows of the attempts evicted for this job, in scan order
    spread: int
    fragmentation: float
    load: float
    """Share of the region's GPUs (CPUs, for a job without) in use before this job is placed."""


@dataclass(frozen=True, slots=True)
class Places:
    """The places of the jobs in the order asked, up to the first that finds none."""

    found: tuple[Place, ...]
    all_found: bool
    room: tuple[int, ...]
    """Per cluster, for how many tasks of the job that finds none there would be room at most, all evicted that may
    be; empty unless evictions were sought."""


@compiled_part
def share_in_use(fleet: FleetArrays, of_gpus: bool) -> float:
    """The share of the region's GPUs (or else CPUs) in use, on machines that take work; 1 when it has none."""
    resource = GPUS if of_gpus else MILLICPUS
    idle = 0
    in_service = 0
    for cluster in range(len(fleet.cluster_room)):
        idle += fleet.cluster_room[cluster, resource]
        in_service += fleet.cluster_room[cluster, IN_SERVICE + resource]
    return 1.0 - idle / in_service if in_service > 0 else 1.0


@compiled_part
def lift(fleet: FleetArrays, attempts: AttemptArrays, row: int) -> None:
    """Thinks an attempt away."""
    charge(fleet, attempts.entries, attempts.rows[row, FIRST_ENTRY], attempts.rows[row, END_ENTRY], GIVE_BACK)
    attempts.rows[row, EVICTABLE] = 0


@compiled_part
def put_back(fleet: FleetArrays, attempts: AttemptArrays, row: int) -> None:
    """The inverse of `lift`."""
    charge(fleet, attempts.entries, attempts.rows[row, FIRST_ENTRY], attempts.rows[row, END_ENTRY], CHARGE)
    attempts.rows[row, EVICTABLE] = 1


@compiled_part
def search_within(
    fleet: FleetArrays, newcomer: Newcomer, attempts: AttemptArrays, evicting: bool, within: int, space: KernelScratch
) -> tuple[int, int]:
    """The best place in one cluster or ANYWHERE: see `search`."""
    first = FIRST
    end = len(fleet.cluster_room)
    if within != ANYWHERE:
        first = within
        end = within + 1
    return search(fleet, newcomer, attempts, evicting, first, end, space)


@compiled_part
def hand_out(fleet: FleetArrays, needs: Needs, choice: Choice, tasks: Integers, entries: Integers) -> None:
    """Fills in what each task of a job gets, in machine order, the lowest free GPUs first, and the entries to charge."""
    task = 0
    for position in range(len(entries)):
        machine = choice.machine[position]
        number = choice.tasks[position]
        shape = fleet.fixed[machine, SHAPE]
        free_gpus = fleet.free_gpus[machine]
        entries[position, MACHINE] = machine
        entries[position, GPU_BITS] = 0
        for resource in range(RESOURCES):
            entries[position, resource] = needs.need[shape, resource] * number
        for _ in range(number):
            gpus = lowest_gpus(free_gpus, needs.need[shape, GPUS])
            free_gpus ^= gpus
            entries[position, GPU_BITS] |= gpus
            tasks[task, TASK_MACHINE] = machine
            tasks[task, TASK_MILLICPUS] = needs.need[shape, MILLICPUS]
            tasks[task, TASK_MEBIBYTES] = needs.need[shape, MEBIBYTES]
            tasks[task, TASK_GPU_BITS] = gpus
            task += 1


@compiled
def new_tables(tasks: int, machines: int) -> tuple[Integers, Integers]:
    """A table of tasks and one of entries."""
    return np.empty((tasks, TASK_COLUMNS), np.int64), np.empty((machines, ENTRY_COLUMNS), np.int64)


@compiled
def joined(tables: list[Integers]) -> Integers:
    """The rows of all tables of tasks, one after the other."""
    rows = 0
    for table in tables:
        rows += len(table)
    whole = np.empty((rows, TASK_COLUMNS), np.int64)
    row = 0
    for table in tables:
        whole[row : row + len(table)] = table
        row += len(table)
    return whole


@compiled
def place_in_order(
    fleet: FleetArrays,
    attempts: AttemptArrays,
    requests: Integers,
    clusters: Integers,
    gone: Integers,
    standing: Standing,
    now_s: float,
    evicting: bool,
) -> tuple[int, Integers, Reals, Integers, Integers, Integers]:
    """Places the jobs one after the other; everything is undone before it returns.

    `requests` are the fields of a Request per job; `clusters` one cluster per job to keep to, or ANYWHERE; `gone` rows
    of attempts to think away. Returns how many jobs found a place, the two tables of jobs, the table of tasks of all
    jobs one after the other, the rows of the victims of all jobs likewise, and the room that the job without a place
    had in each cluster if evictions were sought.
    """
    jobs = np.zeros((len(requests), JOB_COLUMNS), np.int64)
    qualities = np.zeros((len(requests), JOB_QUALITIES), np.float64)
    victims = np.empty(attempts.live, np.int64)
    needs = new_needs(fleet)
    space = new_kernel_scratch(fleet, attempts, requests[:, 0].max(), evicting)
    handed_out = [np.empty((0, TASK_COLUMNS), np.int64)]
    charged = [np.empty((0, ENTRY_COLUMNS), np.int64)]
    for row in gone:
        lift(fleet, attempts, row)
    placed = 0
    end_victim = 0
    for fields in requests:
        request = Request(fields[0], fields[1], fields[2], fields[3], fields[4], fields[5] != 0)
        newcomer = Newcomer(request, needs, work_out_needs(fleet, request, needs), standing, now_s)
        qualities[placed, JOB_LOAD] = share_in_use(fleet, request.gpus > 0)
        cluster, number = search_within(fleet, newcomer, attempts, evicting, clusters[placed], space)
        if cluster == NONE:
            break
        for row in space.best_victims[:number]:
            lift(fleet, attempts, row)
            victims[end_victim] = row
            end_victim += 1
        tasks, entries = new_tables(request.tasks, space.best.length[0])
        hand_out(fleet, needs, space.best, tasks, entries)
        charge(fleet, entries, FIRST, len(entries), CHARGE)
        handed_out.append(tasks)
        charged.append(entries)
        jobs[placed, JOB_CLUSTER] = cluster
        jobs[placed, JOB_END_VICTIM] = end_victim
        qualities[placed, JOB_SPREAD] = space.best_score[SPREAD]
        qualities[placed, JOB_FRAGMENTATION] = space.best_score[FRAGMENTATION]
        placed += 1
    for entries in charged:
        charge(fleet, entries, FIRST, len(entries), GIVE_BACK)
    for row in victims[:end_victim]:
        put_back(fleet, attempts, row)
    for row in gone:
        put_back(fleet, attempts, row)
    return placed, jobs, qualities, joined(handed_out), victims[:end_victim], space.clusters[:, ROOM].copy()


def find_place(
    layout: Layout, attempts: AttemptArrays, request: Request, standing: Standing, now_s: float
) -> Place | tuple[int, ...]:
    """The best place for one job, evicting only if it must; else, per cluster, for how many tasks there is room at most."""
    table = layout.tables.get(request)
    if table is None:
        if len(layout.tables) >= TABLES_REMEMBERED:
            layout.tables.clear()
        table = layout.tables[request] = table_of([request])
    placed, jobs, qualities, tasks, victims, room = place_in_order(
        layout.arrays, attempts, table, _ANYWHERE[:1], _NOBODY, standing, now_s, True
    )
    if not placed:
        return tuple(room.tolist())
    spread, fragmentation, load = qualities[0].tolist()
    return Place(int(jobs[0, JOB_CLUSTER]), tasks, tuple(victims.tolist()), int(spread), fragmentation, load)


def table_of(requests: Sequence[Request]) -> Integers:
    """The fields of each request, one row for each."""
    return np.array(requests, np.int64).reshape(-1, len(Request._fields))


def find_places(
    layout: Layout,
    attempts: AttemptArrays,
    requests: Sequence[Request],
    standing: Standing,
    now_s: float,
    *,
    evicting: bool,
    clusters: Sequence[int] = (),
    gone: Sequence[int] = (),
) -> Places:
    """The best place for each job in turn, the earlier ones and what they evict taken into account.

    With `evicting`, attempts of a worse standing are evicted where a job does not fit otherwise. `clusters` keeps each
    job to one cluster; the attempts in rows `gone` are thought away beforehand.
    """
    placed, jobs, qualities, tasks, victims, room = place_in_order(
        layout.arrays,
        attempts,
        table_of(requests),
        np.array(clusters, np.int64)
        if clusters
        else _ANYWHERE[: len(requests)]
        if len(requests) <= 8
        else np.full(len(requests), ANYWHERE, np.int64),
        np.array(gone, np.int64) if gone else _NOBODY,
        standing,
        now_s,
        evicting,
    )
    found: list[Place] = []
    first_task = first_victim = 0
    rows = victims.tolist()
    for request, (cluster, end_victim), (spread, fragmentation, load) in zip(
        requests[:placed], jobs[:placed].tolist(), qualities[:placed].tolist(), strict=True
    ):
        end_task = first_task + request.tasks
        found.append(
            Place(
                cluster=cluster,
                tasks=tasks[first_task:end_task],
                victims=tuple(rows[first_victim:end_victim]),
                spread=int(spread),
                fragmentation=fragmentation,
                load=load,
            )
        )
        first_task, first_victim = end_task, end_victim
    return Places(
        tuple(found), placed == len(requests), tuple(room.tolist()) if evicting and placed < len(requests) else ()
    )
