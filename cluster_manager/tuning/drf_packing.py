"""Dominant resource fairness with static demands (Ghodsi et al., NSDI 2011, as Synergy §5.7 compares with it).

Rule: the job whose dominant share is the smallest is next: the largest part that its best demand has of all GPUs, CPUs
or memory. It goes where its best demand first fits, and is skipped where it does not.

Invariant: none of Synergy's; demands are static.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_manager.tuning.demand import GpuAmounts
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, RunnableJob
from cluster_manager.tuning.static_demands import StaticDemands, first_fit


def dominant_share(gpus: int, amounts: GpuAmounts, total: MachineRoom) -> float:
    """The largest part of the total that a job with these amounts per GPU asks for, of any resource that there is."""
    asked = gpus, gpus * amounts.millicpus, gpus * amounts.mebibytes
    return max((has / all_of_it for has, all_of_it in zip(asked, total, strict=True) if all_of_it), default=0.0)


def total_room(machines: Sequence[MachineRoom]) -> MachineRoom:
    """All machines as one."""
    return MachineRoom(*(sum(machine[resource] for machine in machines) for resource in range(3)))


@dataclass(frozen=True, slots=True)
class DrfPacking(StaticDemands):
    """See the module."""

    name: str = "drf_packing"

    def allocate(self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> list[JobAllocation | None]:
        total = total_room(machines)
        shares = [dominant_share(job.gpus, job.demand.best, total) for job in jobs]
        return first_fit(jobs, machines, sorted(range(len(jobs)), key=lambda index: (shares[index], index)))
