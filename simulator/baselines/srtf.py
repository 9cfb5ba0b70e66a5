"""Shortest remaining time first, preemptive, with an oracle (Tiresias §5.1).

Rule: the ordering `shortest_remaining` with the levels `expected_end`: the workload that would be done first if it ran now goes
first, and evicts those that would be done later.
Invariant: a victim would have ended strictly later than the one it makes room for.
Ignores: priorities, quotas, how many GPUs a workload takes.
"""

from __future__ import annotations

from global_scheduler.levels.expected_end import ExpectedEnd
from global_scheduler.ordering.shortest_remaining import ShortestRemaining
from simulator.policies.policy import Policy

SRTF = Policy(
    name="srtf",
    summary="shortest remaining time first, preemptive, with an oracle (Tiresias §5.1)",
    ordering=ShortestRemaining(),
    levels=ExpectedEnd(),
)
