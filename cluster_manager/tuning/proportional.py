"""Proportional (Synergy §2): the baseline. Every GPU comes with the CPUs and the memory that are its part of the machine.

Rule: jobs run in the order of the scheduling policy as far as there are GPUs, on the tightest machine, each with its
share of CPUs and memory.

Invariant: a job runs whenever its GPUs are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_manager.tuning.demand import Demand, GpuAmounts, proportional_demand
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, PlacedJob, RunnableJob
from cluster_manager.tuning.places_kept import retuned_in_place
from cluster_manager.tuning.placing import place_tuning
from cluster_manager.tuning.round_arrays import allocations_of, arrays_of, descending_demand, runnable


@dataclass(frozen=True, slots=True)
class Proportional:
    """See the module."""

    name: str = "proportional"
    reverts_others: bool = False

    def allocate(self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> list[JobAllocation | None]:
        shares = {id(job.demand): proportional_demand(job.demand.share) for job in jobs}
        plain = [job._replace(demand=shares[id(job.demand)]) for job in jobs]
        arrays = arrays_of(plain, machines)
        place_tuning(arrays, descending_demand(arrays, runnable(plain, machines)))
        return allocations_of(arrays, plain)

    def retuned(self, jobs: Sequence[PlacedJob], machines: Sequence[MachineRoom]) -> list[GpuAmounts]:
        shares = {id(job.demand): proportional_demand(job.demand.share) for job in jobs}
        plain = [job._replace(demand=shares[id(job.demand)]) for job in jobs]
        return retuned_in_place(plain, machines, lambda arrays, order: None)

    def asks(self, demand: Demand) -> tuple[GpuAmounts, ...]:
        return (demand.share,)
