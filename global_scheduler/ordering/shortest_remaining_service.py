"""Ordering by remaining service, the least first ("SRSF": Tiresias §3.2.1, Table 1).

Rule: the least remaining time × GPUs goes first.
Invariant: of two that wait and would both find room, the one that has fewer GPU-seconds left starts first.
Ignores: how long workloads have waited: the large and long may starve. Workloads without GPUs take no service and go first.
Fails when: there is neither an oracle nor an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge
from global_scheduler.ordering.policy import OrderingInput


@dataclass(frozen=True, slots=True)
class ShortestRemainingService:
    """The fewer GPU-seconds are left, the greater the credit."""

    name: str = "shortest_remaining_service"
    needs: Knowledge = Knowledge.ORACLE

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        return -(queue.remaining_s(self.name) * queue.known.gpus)
