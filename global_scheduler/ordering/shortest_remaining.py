"""Ordering by remaining time, the shortest first ("SJF", "SRTF": Tiresias §2.2, §3.2, §5.1).

Rule: the workload with the least left to do goes first, which is the run time unless an attempt was lost.
Invariant: of two that wait and would both find room, the one that has less left starts first.
Ignores: how many GPUs a workload takes; the long may starve.
Fails when: there is neither an oracle nor an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge
from global_scheduler.ordering.policy import OrderingInput


@dataclass(frozen=True, slots=True)
class ShortestRemaining:
    """The less is left, the greater the credit."""

    name: str = "shortest_remaining"
    needs: Knowledge = Knowledge.ORACLE

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        return -queue.remaining_s(self.name)
