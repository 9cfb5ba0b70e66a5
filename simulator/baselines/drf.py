"""Dominant resource fairness over GPUs and CPUs, without preemption (DRF, NSDI 2011, §4.1 Algorithm 1, §4.3 weights).

Rule: a tenant's dominant share is the larger of its share of all GPUs and its share of all CPUs, divided by its weight;
the tenant of the smallest one goes first. Within a tenant first in, first out, and what finds no room is passed over.
Invariant: whenever a workload starts, no tenant of smaller dominant share had one waiting that would have found room.
Ignores: priorities, quotas, run times, memory. No attempt is evicted, so shares become fair only as fast as attempts end.
Where the algorithm stops because the poorest tenant's next task does not fit, this goes on with the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from global_scheduler.ordering.fifo import FifoOrdering
from simulator.baselines.fair_share import start_poorest_first
from simulator.policies.allocation import QueuePass
from simulator.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class SmallestDominantShare:
    """The tenant of the smallest dominant share goes first."""

    name: str = "smallest_dominant_share"

    def allocate(self, queue_pass: QueuePass) -> None:
        # A fleet without GPUs, or without CPUs, has nothing of it to share.
        gpus, cpus = max(queue_pass.fleet_gpus, 1), max(queue_pass.fleet_cpus, 1.0)

        def dominant_share(tenant: int) -> float:
            held = max(queue_pass.use_of_tenant(tenant) / gpus, queue_pass.cpus_of_tenant(tenant) / cpus)
            return held / queue_pass.weight_of_tenant(tenant)

        start_poorest_first(queue_pass, dominant_share)


DRF = Policy(
    name="drf",
    summary="dominant resource fairness over GPUs and CPUs (DRF §4.1)",
    ordering=FifoOrdering(),
    allocation=SmallestDominantShare(),
    tenants_apart=True,
)
