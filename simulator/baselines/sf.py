"""Smallest first, without preemption ("SF": Tiresias §3.2.1, Table 1).

Rule: the ordering `fewest_gpus`; what finds no room is passed over.
Invariant: of two that wait and would both find room, the one that asks for fewer GPUs starts first.
Ignores: priorities, quotas, run times, and how long a workload has waited: the large may starve.
"""

from __future__ import annotations

from global_scheduler.ordering.fewest_gpus import FewestGpus
from simulator.policies.policy import Policy

SF = Policy(
    name="sf",
    summary="smallest first: the one that asks for the fewest GPUs (Tiresias §3.2.1)",
    ordering=FewestGpus(),
)
