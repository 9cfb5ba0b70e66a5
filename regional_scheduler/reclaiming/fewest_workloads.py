"""Smallest (job) count first (Lyra §7.1): the machines that host the fewest workloads go back first.

Rule: by workloads, then by the GPUs that these hold there, then in the order of the fleet. It ignores that a workload on
several machines is evicted once for all of them, so that it may evict more than it must; where every workload is on one
machine it evicts the fewest that is possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from domain.plan import Reclaim
from regional_scheduler.reclaiming.policy import MachineOnLoan, reclaim_of


@dataclass(frozen=True, slots=True)
class FewestWorkloadsFirst:
    """Needs no randomness."""

    name: str = "fewest_workloads"

    def choose(self, on_loan: Sequence[MachineOnLoan], count: int, rng: np.random.Generator) -> Reclaim:
        ranked = sorted(
            range(len(on_loan)), key=lambda place: (len(on_loan[place].attempts), on_loan[place].gpus_in_use, place)
        )
        return reclaim_of([on_loan[place] for place in sorted(ranked[:count])])
