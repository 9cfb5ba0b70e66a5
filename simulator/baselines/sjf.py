"""Shortest job first, without preemption, with an oracle (Tiresias §2.2, §3.2).

Rule: the ordering `shortest_remaining`, which is the run time unless an attempt was lost; what finds no room is passed
over, and no attempt is interrupted.
Invariant: of two that wait and would both find room, the shorter one starts first; none is ever preempted.
Ignores: priorities, quotas, how many GPUs a workload takes; the long may starve.
"""

from __future__ import annotations

from global_scheduler.ordering.shortest_remaining import ShortestRemaining
from simulator.policies.policy import Policy

SJF = Policy(
    name="sjf",
    summary="shortest job first, without preemption, with an oracle (Tiresias §3.2)",
    ordering=ShortestRemaining(),
)
