"""Smallest (job) count first (Lyra §7.1): the machines that host the fewest workloads go back first.

Rule: by workloads that would be evicted, then by the GPUs that these hold there, then in the order of the fleet. It ignores
that a workload on several machines is evicted once for all of them, so that it may evict more than it must; where every
workload is on one machine it evicts the fewest that is possible. Flexible tasks count for nothing: they are no job of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regional_scheduler.reclaiming.policy import MachineOnLoan, ReclaimChoice, reclaim_of


@dataclass(frozen=True, slots=True)
class FewestWorkloadsFirst:
    """Needs no randomness."""

    name: str = "fewest_workloads"

    def choose(self, on_loan: Sequence[MachineOnLoan], count: int, rng: np.random.Generator) -> ReclaimChoice:
        ranked = sorted(
            range(len(on_loan)), key=lambda place: (len(on_loan[place].evicted), on_loan[place].gpus_in_use, place)
        )
        return reclaim_of([on_loan[place] for place in sorted(ranked[:count])])
