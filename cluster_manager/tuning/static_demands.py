"""What mechanisms have in common whose jobs hold their best demand from their start to their end, or do not run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from cluster_manager.tuning.demand import Demand, GpuAmounts
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, PlacedJob, RunnableJob
from cluster_manager.tuning.placing import place_greedily
from cluster_manager.tuning.round_arrays import allocations_of, arrays_of


class StaticDemands:
    """Best demands that nothing ever changes."""

    __slots__ = ()

    def retuned(self, jobs: Sequence[PlacedJob], machines: Sequence[MachineRoom]) -> list[GpuAmounts]:
        """What they hold."""
        return [job.held for job in jobs]

    def asks(self, demand: Demand) -> tuple[GpuAmounts, ...]:
        """The best demand, and nothing less."""
        return (demand.best,)

    @property
    def reverts_others(self) -> bool:
        return False


def first_fit(
    jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom], order: Iterable[int]
) -> list[JobAllocation | None]:
    """Each job in this order where its best demand first fits; those that fit nowhere are skipped."""
    arrays = arrays_of(jobs, machines)
    place_greedily(arrays, np.fromiter(order, np.int64), arrays.best, True)
    return allocations_of(arrays, jobs)
