"""Ordering by the first start (Tiresias §3.2.3: the queues of Discretized 2D-LAS).

Rule: the workload whose first attempt started first goes first; those that never started come after all that did, by
submit time.
Invariant: of two that were evicted from one level, the one that started first goes on first, whichever came first.
Ignores: run times, attained service, and how long a workload has waited.
Fails when: never.
"""

from __future__ import annotations

from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge
from global_scheduler.ordering.policy import OrderingInput

NEVER_STARTED = -1e18
"""The credit of what has not started yet; less than that of any start."""


@dataclass(frozen=True, slots=True)
class FirstStarted:
    """The sooner the first start, the greater the credit."""

    name: str = "first_started"
    needs: Knowledge = Knowledge.LIVE

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        return start_order(queue)


def start_order(queue: OrderingInput[Numbers]) -> Numbers:
    """The credit of each by its first start."""
    return queue.arithmetic.larger(-queue.known.first_started_s, NEVER_STARTED)
