"""Ordering by size, the smallest first ("SF": Tiresias §3.2.1, Table 1).

Rule: the workload that asks for the fewest GPUs goes first, then the one that came first.
Invariant: of two that wait and would both find room, the one that asks for fewer GPUs starts first.
Ignores: run times, and how long workloads have waited: the large may starve.
Fails when: never; every workload says how many GPUs it wants.
"""

from __future__ import annotations

from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge
from global_scheduler.ordering.policy import OrderingInput


@dataclass(frozen=True, slots=True)
class FewestGpus:
    """The fewer GPUs, the greater the credit."""

    name: str = "fewest_gpus"
    needs: Knowledge = Knowledge.LIVE

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        return -queue.known.gpus
