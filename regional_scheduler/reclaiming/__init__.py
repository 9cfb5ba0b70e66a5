"""Reclaiming policies: which loaned machines go back when the inference clusters want some of them (Lyra §4).

RECLAIMING has those that a service can follow by name; `optimal` takes seconds, and is there to compare with.
"""

from __future__ import annotations

from types import MappingProxyType

from regional_scheduler.reclaiming.fewest_evictions import FewestEvictions
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.least_preemption_cost import LeastPreemptionCost
from regional_scheduler.reclaiming.policy import ReclaimingPolicy
from regional_scheduler.reclaiming.random_machines import RandomMachines

RECLAIMING: MappingProxyType[str, ReclaimingPolicy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (FewestEvictions(), FewestWorkloadsFirst(), LeastPreemptionCost(), RandomMachines())
    }
)
