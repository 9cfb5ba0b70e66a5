"""Ordering by submit time (design §4; the baseline that Tiresias §5 calls FIFO).

Rule: first come, first served; ties by id.
Invariant: no workload overtakes an earlier workload of the same (priority, level), whatever its tenant.
Ignores: credit, and with it fair shares. Credit still decides the quota pass.
Fails when: never; every workload has a submit time.
"""

from __future__ import annotations

from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge
from global_scheduler.ordering.policy import OrderingInput


@dataclass(frozen=True, slots=True)
class FifoOrdering:
    """The same credit for all, so that the submit time decides; it never changes, so nothing is ever rewritten."""

    name: str = "fifo"
    needs: Knowledge = Knowledge.LIVE

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        return queue.constant(0.0)
