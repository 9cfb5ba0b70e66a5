"""Where one more job goes on machines on which others run (Synergy §4.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster_manager.tuning.demand import GpuAmounts, proportional_demand
from cluster_manager.tuning.mechanism import MachineRoom, Part, RunnableJob
from cluster_manager.tuning.placing import place_with_base
from cluster_manager.tuning.round_arrays import allocations_of, arrays_of


def tightest_place(gpus: int, amounts: GpuAmounts, free: Sequence[MachineRoom]) -> tuple[Part, ...] | None:
    """The fewest machines that have so many GPUs with these amounts for each; None where all of them have not.

    Of machines that hold the whole job, or what is left of it, the one with the least free: GPUs, then CPUs, then memory.
    """
    arrays = arrays_of([job := RunnableJob(gpus, proportional_demand(amounts))], free)
    place_with_base(arrays, np.zeros(1, np.int64))
    (found,) = allocations_of(arrays, [job])
    return None if found is None else found.parts
