"""Dominant resource fairness with static demands, each job a user of its own (DRF, NSDI 2011, §4.1; Synergy §5.7).

Rule: workloads ask for their best demand of CPUs and memory and hold that to their end. Of those that find room, the one whose
dominant share is the smallest starts: the largest part that it asks for of all GPUs, CPUs or memory. The order of the queue
decides between equals.
Invariant: whenever a workload starts, none of a smaller dominant share waits that would find room.
Ignores: priorities, quotas, tenants; that CPUs and memory are fungible, so that GPUs are idle where these run out first.
"""

from __future__ import annotations

from dataclasses import dataclass

from cluster_manager.tuning.drf_packing import DrfPacking
from global_scheduler.ordering.fifo import FifoOrdering
from simulator.policies.allocation import QueuePass
from simulator.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class SmallestDominantDemand:
    """The workload of the smallest dominant share goes first."""

    name: str = "smallest_dominant_demand"

    def allocate(self, queue_pass: QueuePass) -> None:
        queue_pass.pass_over_hopeless()
        while heads := queue_pass.heads():
            # The first of equals is the first in the queue.
            queue_pass.start(min(heads, key=queue_pass.dominant_share))


DRF_PACKING = Policy(
    name="drf_packing",
    summary="best demands of CPUs and memory or nothing, smallest dominant share first (DRF §4.1, Synergy §5.7)",
    ordering=FifoOrdering(),
    allocation=SmallestDominantDemand(),
    tuning=DrfPacking(),
    takes_ordering=True,
)
