"""Smallest first, without preemption ("SF": Tiresias §3.2.1, Table 1).

Rule: who asks for the fewest GPUs goes first, then who came first; who finds no room is passed over.
Invariant: of two that wait and would both find room, the one that asks for fewer GPUs starts first.
Ignores: priorities, quotas, run times, and how long somebody has waited: the large may starve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from global_scheduler.ordering.policy import OrderingInput, WorkUnknown
from simulator.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class FewestGpus:
    """The fewer GPUs, the greater the credit."""

    name: str = "fewest_gpus"

    def ordering_credit(self, queue: OrderingInput) -> NDArray[np.float64]:
        if queue.work is None:
            raise WorkUnknown(self.name)
        return -queue.work.gpus


SF = Policy(
    name="sf",
    summary="smallest first: who asks for the fewest GPUs (Tiresias §3.2.1)",
    ordering=FewestGpus(),
)
