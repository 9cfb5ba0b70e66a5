"""Shortest remaining service first, preemptive, with an oracle ("SRSF": Tiresias §3.2.1, Table 1).

Rule: the ordering `shortest_remaining_service` with the levels `remaining_service`: the least remaining time × GPUs
goes first, and evicts what is in a worse bucket; within a bucket none is evicted.
Invariant: a victim is in a worse bucket than the one that it makes room for, so it has strictly more left to do.
Ignores: priorities, quotas. Workloads without GPUs take no service and go first.
"""

from __future__ import annotations

from global_scheduler.levels.remaining_service import RemainingService
from global_scheduler.ordering.shortest_remaining_service import ShortestRemainingService
from simulator.policies.policy import Policy

SRSF = Policy(
    name="srsf",
    summary="shortest remaining service (time × GPUs) first, preemptive, with an oracle (Tiresias §3.2.1)",
    ordering=ShortestRemainingService(),
    levels=RemainingService(),
)
