"""Ordering by the last turn, for round robin (Gandiva, OSDI 2018, §3.2).

Rule: the workload that has waited longest since its submission, or since its last attempt ended, goes first.
Invariant: of two that would both find room, the one that has waited longer starts first.
Ignores: run times, attained service, and how long ago a workload was submitted.
Fails when: never; every workload that waits has begun to wait at some time.
"""

from __future__ import annotations

from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge
from global_scheduler.ordering.policy import OrderingInput


@dataclass(frozen=True, slots=True)
class LongestWaiting:
    """The longer it waits since it last had a turn, the greater the credit."""

    name: str = "longest_waiting"
    needs: Knowledge = Knowledge.LIVE

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        return -queue.known.queued_since_s
