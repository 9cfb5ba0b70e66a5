"""Synergy-TUNE (§4.2): best demands where they fit, and at least the speed of the proportional share for everybody.

Rule: the jobs whose GPUs are there run, whatever else they ask for. By falling GPUs, CPUs and memory of their best
demands, each goes to the machine with the least free that is enough. A job that fits nowhere (1) asks for its base
instead, and if it still does not fit, (2) goes where its GPUs are, and jobs there that hold more than their base revert
to it. What the paper does not have: exchanges make the round faster (`exchanges`), and so they do for rounds that begin
with what would be ideal (`balance`), by several prices of memory; the fastest of them counts, and jobs change places
between its machines where that helps (`relocations`). `exact_paper` leaves that out.

The base of a job is the least within its proportional share that is as fast as it: where the paper reverts to the share
itself, what would not be used is left to others.

Invariant: I7, no job is slower than with its share; and no GPU is idle for lack of CPUs or memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster_manager.capacity.tables import Integers, Reals
from cluster_manager.tuning.balance import place_balanced
from cluster_manager.tuning.demand import Demand, GpuAmounts
from cluster_manager.tuning.exchanges import LEAST_GAIN, MOST_SWEEPS, improve
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, PlacedJob, RunnableJob
from cluster_manager.tuning.places_kept import retuned_in_place
from cluster_manager.tuning.placing import grant, place_tuning
from cluster_manager.tuning.relocations import relocated
from cluster_manager.tuning.round_arrays import (
    NOT_PLACED,
    RoundArrays,
    allocations_of,
    arrays_of,
    copied,
    descending_demand,
    runnable,
    speed_of,
)

MEMORY_PRICES = (1.0, 0.3)
"""Of all memory of a machine, where all its CPUs cost 1."""


@dataclass(frozen=True, slots=True)
class Tune:
    """See the module."""

    name: str = "tune"
    reverts_others: bool = True
    exact_paper: bool = False

    def allocate(self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> list[JobAllocation | None]:
        arrays = arrays_of(jobs, machines)
        order = descending_demand(arrays, runnable(jobs, machines))
        empty = copied(arrays)
        place_tuning(arrays, order)
        if self.exact_paper:
            return allocations_of(arrays, jobs)
        improve(arrays, order, MOST_SWEEPS)
        best, fastest = arrays, speed_of(arrays)
        for memory_price in MEMORY_PRICES:
            tried = copied(empty)
            place_balanced(tried, order, np.zeros(len(jobs), np.int64), _prices(machines, memory_price))
            improve(tried, order, MOST_SWEEPS)
            same_jobs = bool(((tried.level == NOT_PLACED) == (arrays.level == NOT_PLACED)).all())
            if same_jobs and speed_of(tried) > fastest + LEAST_GAIN:
                best, fastest = tried, speed_of(tried)
        relocated(best, _prices(machines, MEMORY_PRICES[-1]))
        improve(best, order, MOST_SWEEPS)
        return allocations_of(best, jobs)

    def retuned(self, jobs: Sequence[PlacedJob], machines: Sequence[MachineRoom]) -> list[GpuAmounts]:
        return retuned_in_place(jobs, machines, self.share_out)

    def asks(self, demand: Demand) -> tuple[GpuAmounts, ...]:
        return (demand.best,) if demand.best == demand.base else (demand.best, demand.base)

    def share_out(self, arrays: RoundArrays, order: Integers) -> None:
        """Best demands where they fit, in this order, and exchanges."""
        grant(arrays, order, arrays.best)
        if not self.exact_paper:
            improve(arrays, order, MOST_SWEEPS)


def _prices(machines: Sequence[MachineRoom], memory_price: float) -> Reals:
    """Of a thousandth of a CPU and of a MiB."""
    cpus = max([machine.millicpus for machine in machines], default=0)
    memory = max([machine.mebibytes for machine in machines], default=0)
    return np.array([1.0 / max(1, cpus), memory_price / max(1, memory)])
