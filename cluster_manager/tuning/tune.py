"""Synergy-TUNE (§4.2): best demands where they fit, and at least the speed of the proportional share for everybody.

Rule: the jobs whose GPUs are there run, whatever else they ask for. By falling GPUs, CPUs and memory of their best
demands, each goes to the machine with the least free that is enough. A job that fits nowhere (1) asks for its base
instead, and if it still does not fit, (2) goes where its GPUs are, and jobs there that hold more than their base revert
to it. Afterwards exchanges make the round faster (`exchanges`), which the paper does not have; `exact_paper` leaves
them out.

The base of a job is the least within its proportional share that is as fast as it: where the paper reverts to the share
itself, what would not be used is left to others.

Invariant: I7, no job is slower than with its share; and no GPU is idle for lack of CPUs or memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_manager.capacity.tables import Integers
from cluster_manager.tuning.demand import Demand, GpuAmounts
from cluster_manager.tuning.exchanges import MOST_SWEEPS, improve
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, PlacedJob, RunnableJob
from cluster_manager.tuning.places_kept import retuned_in_place
from cluster_manager.tuning.placing import grant_best, place_tuning
from cluster_manager.tuning.round_arrays import RoundArrays, allocations_of, arrays_of, descending_demand, runnable


@dataclass(frozen=True, slots=True)
class Tune:
    """See the module."""

    name: str = "tune"
    reverts_others: bool = True
    exact_paper: bool = False

    def allocate(self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> list[JobAllocation | None]:
        arrays = arrays_of(jobs, machines)
        order = descending_demand(arrays, runnable(jobs, machines))
        place_tuning(arrays, order)
        if not self.exact_paper:
            improve(arrays, order, MOST_SWEEPS)
        return allocations_of(arrays, jobs)

    def retuned(self, jobs: Sequence[PlacedJob], machines: Sequence[MachineRoom]) -> list[GpuAmounts]:
        return retuned_in_place(jobs, machines, self._share_out)

    def asks(self, demand: Demand) -> tuple[GpuAmounts, ...]:
        return (demand.best,) if demand.best == demand.base else (demand.best, demand.base)

    def _share_out(self, arrays: RoundArrays, order: Integers) -> None:
        grant_best(arrays, order)
        if not self.exact_paper:
            improve(arrays, order, MOST_SWEEPS)
