"""Ordering by credit, the default (MAST §4.2).

Rule: the workload with the highest credit first: the longer it waits and the less its tenant used, the sooner.
Invariant: within a tenant nobody overtakes an earlier workload of the same (priority, level).
Ignores: how long a workload will run, and how much it has run.
Fails when: never; every workload has a credit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from global_scheduler.ordering.policy import OrderingInput


class CreditOrdering:
    """The credit itself."""

    name = "credit"

    def ordering_credit(self, queue: OrderingInput) -> NDArray[np.float64]:
        return queue.credit
