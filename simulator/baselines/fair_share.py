"""Fair share of GPUs between tenants, without preemption (weighted max-min fairness, by progressive filling).

Rule: of the tenants with a workload that finds room, the one that holds the fewest GPUs for its weight goes first; within
a tenant first in, first out, and what finds no room is passed over.
Invariant: whenever a workload starts, no tenant that holds less for its weight had one waiting that would have found
room.
Ignores: priorities, quotas, run times, and what tenants held in the past. No attempt is evicted, so shares become fair
only as fast as attempts end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from global_scheduler.ordering.fifo import FifoOrdering
from simulator.policies.allocation import QueuePass
from simulator.policies.policy import Policy
from simulator.policies.work import Work


def start_poorest_first(queue_pass: QueuePass, share_of: Callable[[int], float]) -> None:
    """Gives the tenant of the smallest share the next turn, until no workload finds room. Needs tenants that are apart."""
    queue_pass.pass_over_hopeless()
    heads = _heads_by_tenant(queue_pass)
    turns = [(share_of(tenant), tenant) for tenant in sorted(heads)]
    heapq.heapify(turns)
    while turns:
        _, tenant = heapq.heappop(turns)
        waiting = heads[tenant]
        while waiting and not queue_pass.start(waiting[0]):
            waiting.pop(0)
        if waiting:
            # One started: behind it another of its kind may have come to the head.
            heads = _heads_by_tenant(queue_pass)
            if tenant in heads:
                heapq.heappush(turns, (share_of(tenant), tenant))


def _heads_by_tenant(queue_pass: QueuePass) -> dict[int, list[Work]]:
    """The first of each kind that was not refused, in queue order, by tenant."""
    heads: dict[int, list[Work]] = {}
    for work in queue_pass.heads():
        heads.setdefault(work.tenant, []).append(work)
    return heads


@dataclass(frozen=True, slots=True)
class FewestGpusHeld:
    """The tenant that holds the fewest GPUs for its weight goes first."""

    name: str = "fewest_gpus_held"

    def allocate(self, queue_pass: QueuePass) -> None:
        start_poorest_first(
            queue_pass, lambda tenant: queue_pass.use_of_tenant(tenant) / queue_pass.weight_of_tenant(tenant)
        )


FAIR_SHARE = Policy(
    name="fair_share",
    summary="the tenant that holds the fewest GPUs for its weight goes first (weighted max-min fairness)",
    ordering=FifoOrdering(),
    allocation=FewestGpusHeld(),
    tenants_apart=True,
)
