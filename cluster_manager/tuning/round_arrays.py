"""A round in arrays: the jobs, what they may hold, what they do hold and where, and what is free on the machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.tables import Integers, Reals
from cluster_manager.tuning.demand import Demand, GpuAmounts
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, Part, PlacedJob, RunnableJob

NOT_PLACED = -1


class RoundArrays(NamedTuple):
    """For kernels. A job's options are those of its demand: rows `first` to `first + option_count` of the table of all."""

    gpus: Integers  # [job]
    first: Integers  # [job]
    option_count: Integers  # [job]
    best: Integers  # [job] the option that it asks for first, counted from its own first
    options: Integers  # [option, CPU | MEMORY] per GPU
    speeds: Reals  # [option]
    level: Integers  # [job] the option that it holds, counted from its own first; NOT_PLACED
    free: Integers  # [machine, GPUS | MILLICPUS | MEBIBYTES]
    parts: Integers  # [job] machines that it is on
    part_machine: Integers  # [job, part]
    part_gpus: Integers  # [job, part]
    members: Integers  # [machine] jobs that are on it
    member: Integers  # [machine, member] which
    scratch: Integers  # [3, machine]


def arrays_of(jobs: Sequence[RunnableJob] | Sequence[PlacedJob], machines: Sequence[MachineRoom]) -> RoundArrays:
    """The round before anything is placed."""
    demands: dict[int, tuple[int, Demand]] = {}
    rows = 0
    for job in jobs:
        if id(job.demand) not in demands:
            demands[id(job.demand)] = rows, job.demand
            rows += len(job.demand.speeds)
    known = [demand for _, demand in demands.values()]
    amount, places = len(jobs), len(machines)
    gpus = np.array([job.gpus for job in jobs], np.int64)
    most_parts = min(places, int(gpus.max(initial=1)))
    return RoundArrays(
        gpus,
        np.array([demands[id(job.demand)][0] for job in jobs], np.int64),
        np.array([len(job.demand.speeds) for job in jobs], np.int64),
        np.array([job.demand.best_option for job in jobs], np.int64),
        np.concatenate([demand.options for demand in known]) if known else np.zeros((0, 2), np.int64),
        np.concatenate([demand.speeds for demand in known]) if known else np.zeros(0),
        np.full(amount, NOT_PLACED, np.int64),
        np.array(machines, np.int64).reshape(-1, 3),
        np.zeros(amount, np.int64),
        np.zeros((amount, most_parts), np.int64),
        np.zeros((amount, most_parts), np.int64),
        np.zeros(places, np.int64),
        np.zeros((places, max([machine.gpus for machine in machines], default=0)), np.int64),
        np.zeros((3, places), np.int64),
    )


def allocations_of(arrays: RoundArrays, jobs: Sequence[RunnableJob]) -> list[JobAllocation | None]:
    """What the arrays say of each job."""
    levels, counts = arrays.level.tolist(), arrays.parts.tolist()
    most = max(counts, default=0)
    machines, gpus = arrays.part_machine[:, :most].tolist(), arrays.part_gpus[:, :most].tolist()
    known: dict[tuple[int, int], tuple[GpuAmounts, float]] = {}
    found: list[JobAllocation | None] = []
    for index, job in enumerate(jobs):
        option, parts = levels[index], counts[index]
        if option == NOT_PLACED:
            found.append(None)
            continue
        held = known.get((id(job.demand), option))
        if held is None:
            held = known[id(job.demand), option] = job.demand.amounts(option), float(job.demand.speeds[option])
        placed = tuple(map(Part, machines[index][:parts], gpus[index][:parts]))
        found.append(JobAllocation(placed if parts == 1 else tuple(sorted(placed)), *held))
    return found


def copied(arrays: RoundArrays) -> RoundArrays:
    """The same round, to try something else in. What nothing changes is shared."""
    return arrays._replace(
        level=arrays.level.copy(),
        free=arrays.free.copy(),
        parts=arrays.parts.copy(),
        part_machine=arrays.part_machine.copy(),
        part_gpus=arrays.part_gpus.copy(),
        members=arrays.members.copy(),
        member=arrays.member.copy(),
    )


def speed_of(arrays: RoundArrays) -> float:
    """The speeds of all jobs that are placed."""
    placed = np.flatnonzero(arrays.level != NOT_PLACED)
    return float(arrays.speeds[arrays.first[placed] + arrays.level[placed]].sum())


def runnable(jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> list[int]:
    """The jobs whose GPUs are there, from the first on: whatever else they ask for is fungible (Synergy §4.2)."""
    left = sum(machine.gpus for machine in machines)
    chosen: list[int] = []
    for index, job in enumerate(jobs):
        if job.gpus <= left:
            chosen.append(index)
            left -= job.gpus
    return chosen


def descending_demand(arrays: RoundArrays, jobs: Iterable[int]) -> Integers:
    """The jobs by GPUs, then CPUs, then memory of their best demands, the largest first (Synergy §4.2)."""
    chosen = np.fromiter(jobs, np.int64)
    wanted = arrays.options[arrays.first[chosen] + arrays.best[chosen]]
    gpus = arrays.gpus[chosen]
    return chosen[np.lexsort((chosen, -wanted[:, 1] * gpus, -wanted[:, 0] * gpus, -gpus))]
