"""Ordering by credit, the default (MAST §4.2).

Rule: the workload with the highest credit first: the longer it waits and the less its tenant used, the sooner.
Invariant: within a tenant no workload overtakes an earlier workload of the same (priority, level).
Ignores: how long a workload will run, and how much it has run.
Fails when: never; every workload has a credit.
"""

from __future__ import annotations

from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge
from global_scheduler.ordering.policy import OrderingInput


@dataclass(frozen=True, slots=True)
class CreditOrdering:
    """The credit itself."""

    name: str = "credit"
    needs: Knowledge = Knowledge.LIVE

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        return queue.credit
