"""Ordering by the Gittins index, discretised (Tiresias §3.2.2 Pseudocode 1, §3.2.3: Discretized 2D-Gittins).

Rule: the greatest Gittins index goes first, given what a workload has attained since its last promotion; the quantum is the
upper bound of its queue, and infinite in the last one.
Invariant: of two in one queue, the one that is likelier to complete within the quantum, for the service that it takes, goes
first. Equal indices go by submit time.
Ignores: run times, and how long a workload has waited.
Fails when: never. Before the first workload has completed there is no distribution; then the queues are those of 2D-LAS,
by the first start (Pseudocode 1, line 3). What has attained more than any that has completed has index 0 and goes last.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge
from global_scheduler.levels.attained_service import level_of_service, require_thresholds
from global_scheduler.ordering.first_started import start_order
from global_scheduler.ordering.policy import OrderingInput


@dataclass(frozen=True, slots=True)
class GittinsOrdering:
    """The greater the index, the greater the credit. The thresholds are those of the levels."""

    thresholds_gpu_s: tuple[float, ...] = (3200.0,)
    name: str = "gittins"
    needs: Knowledge = Knowledge.COMPLETED

    def __post_init__(self) -> None:
        require_thresholds(self.thresholds_gpu_s)

    def ordering_credit(self, queue: OrderingInput[Numbers]) -> Numbers:
        attained_gpu_s = queue.known.attained_gpu_s
        level = level_of_service(queue, self.thresholds_gpu_s, attained_gpu_s)
        quantum_gpu_s = queue.arithmetic.pick((*self.thresholds_gpu_s, math.inf), level)
        index = queue.gittins_index(attained_gpu_s, quantum_gpu_s)
        return start_order(queue) if index is None else index
