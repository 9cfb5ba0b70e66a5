"""Tetris with static demands (Grandl et al., SIGCOMM 2014, §3, as Synergy §5.7 compares with it).

Rule: of all jobs and machines that have the job's best demand, the pair with the greatest score is next: alignment, the
inner product of the demand and what is free, less remaining work, both as parts of a machine and weighed so that on
average they count alike. Jobs larger than any machine come last, where they first fit.

Invariant: none of Synergy's; demands are static.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster_manager.capacity.tables import Reals
from cluster_manager.tuning.mechanism import JobAllocation, MachineRoom, RunnableJob
from cluster_manager.tuning.placing import place_greedily, place_on
from cluster_manager.tuning.round_arrays import NOT_PLACED, allocations_of, arrays_of
from cluster_manager.tuning.static_demands import StaticDemands

_NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class TetrisPacking(StaticDemands):
    """See the module."""

    name: str = "tetris_packing"

    def allocate(self, jobs: Sequence[RunnableJob], machines: Sequence[MachineRoom]) -> list[JobAllocation | None]:
        arrays = arrays_of(jobs, machines)
        asked = _asked(jobs)
        largest = np.maximum(arrays.free.max(axis=0, initial=1), 1).astype(np.float64)
        penalty = _remaining_work(jobs, asked / largest)
        waiting = np.ones(len(jobs), bool)
        score = (asked / largest) @ (arrays.free / largest).T
        usual = score.mean() if score.size else 0.0
        while True:
            fits = waiting[:, None] & (asked[:, None, :] <= arrays.free[None, :, :]).all(axis=2)
            if not fits.any():
                break
            score = (asked / largest) @ (arrays.free / largest).T - usual * penalty[:, None]
            job, machine = divmod(int(np.argmax(np.where(fits, score, _NEVER))), len(machines))
            place_on(arrays, job, machine, int(arrays.best[job]))
            waiting[job] = False
        place_greedily(arrays, np.flatnonzero(arrays.level == NOT_PLACED), arrays.best, True)
        return allocations_of(arrays, jobs)


def _asked(jobs: Sequence[RunnableJob]) -> Reals:
    """[job, GPUS | MILLICPUS | MEBIBYTES] the best demands."""
    best = [(job.gpus, job.gpus * job.demand.best.millicpus, job.gpus * job.demand.best.mebibytes) for job in jobs]
    return np.array(best, np.float64).reshape(-1, 3)


def _remaining_work(jobs: Sequence[RunnableJob], parts: Reals) -> Reals:
    """[job] remaining time times what is asked for, 1 on average; 0 where the times are not known."""
    work = np.array([job.remaining_s for job in jobs]) * parts.sum(axis=1)
    mean = work.mean() if len(work) else 0.0
    return work / mean if 0.0 < mean < math.inf else np.zeros(len(work))
