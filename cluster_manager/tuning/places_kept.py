"""A round for jobs that stay where they are: only what they hold of CPUs and memory is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, Integers
from cluster_manager.tuning.demand import GpuAmounts
from cluster_manager.tuning.mechanism import MachineRoom, PlacedJob
from cluster_manager.tuning.round_arrays import NOT_PLACED, RoundArrays, arrays_of, descending_demand

Share: TypeAlias = Callable[[RoundArrays, Integers], None]
"""Decides what the jobs in the second argument, by falling demand, hold; they hold their base when it is called."""


def retuned_in_place(jobs: Sequence[PlacedJob], machines: Sequence[MachineRoom], share_out: Share) -> list[GpuAmounts]:
    """What each job holds for each GPU, when everybody begins with the base and the rest is shared out.

    Where the bases of all jobs of a machine do not fit (others have taken what belongs to its GPUs), its jobs keep what
    they hold.
    """
    arrays = arrays_of(jobs, machines)
    kept = _kept(jobs, arrays.free)
    for index, job in enumerate(jobs):
        held = job.held if index in kept else job.demand.base
        _take(arrays.free, job, held)
        if index not in kept:
            _put(arrays, index, job)
    share_out(arrays, descending_demand(arrays, [index for index in range(len(jobs)) if index not in kept]))
    levels = arrays.level.tolist()
    return [
        job.held if levels[index] == NOT_PLACED else job.demand.amounts(levels[index]) for index, job in enumerate(jobs)
    ]


def _kept(jobs: Sequence[PlacedJob], room: Integers) -> set[int]:
    """The jobs that keep what they hold: those of machines that the bases exceed, and whom these then exceed with them."""
    on_machine: dict[int, list[int]] = {}
    for index, job in enumerate(jobs):
        for part in job.parts:
            on_machine.setdefault(part.machine, []).append(index)
    kept: set[int] = set()
    while True:
        free = room.copy()
        for index, job in enumerate(jobs):
            _take(free, job, job.held if index in kept else job.demand.base)
        exceeded = np.flatnonzero((free[:, MILLICPUS] < 0) | (free[:, MEBIBYTES] < 0)).tolist()
        found = {index for machine in exceeded for index in on_machine[machine]} - kept
        if not found:
            return kept
        kept |= found


def _take(free: Integers, job: PlacedJob, amounts: GpuAmounts) -> None:
    for machine, gpus in job.parts:
        free[machine, GPUS] -= gpus
        free[machine, MILLICPUS] -= gpus * amounts.millicpus
        free[machine, MEBIBYTES] -= gpus * amounts.mebibytes


def _put(arrays: RoundArrays, index: int, job: PlacedJob) -> None:
    """Notes where a job is, with its base."""
    arrays.level[index] = 0
    arrays.parts[index] = len(job.parts)
    for number, (machine, gpus) in enumerate(job.parts):
        arrays.part_machine[index, number] = machine
        arrays.part_gpus[index, number] = gpus
        arrays.member[machine, arrays.members[machine]] = index
        arrays.members[machine] += 1
