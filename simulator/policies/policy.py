"""A policy: one plug-in for each point. What `--policies` names."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_manager.tuning.mechanism import TuningMechanism
from domain.eviction import DEFAULT_RULE, EvictionRule, VictimChoice
from global_scheduler.levels.policy import LevelPolicy
from global_scheduler.ordering.policy import OrderingPolicy
from regional_scheduler.adjustment import ElasticPolicy
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.policy import ReclaimingPolicy
from simulator.policies.allocation import AllocationPolicy, FirstThatFits
from simulator.policies.placement import Consolidated, PlacementPolicy
from simulator.policies.region_choice import LateBinding, RegionChoice

SPARES_WORK = EvictionRule(victims=VictimChoice.LEAST_WORK_DESTROYED)
"""As a service evicts where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything that decides in a run."""

    name: str
    summary: str
    """One line, with the source."""
    ordering: OrderingPolicy
    """Which workload goes first within a (priority, level)."""
    scans: bool = False
    """True: scan passes decide on priority, quota and credit (MAST §4.2), so that tenants matter. False: all are at
    priority 0 and within quota, and the ordering policy alone decides."""
    levels: LevelPolicy | None = None
    """None: all are at level 0, and none evicts another of the same priority."""
    allocation: AllocationPolicy = FirstThatFits()
    placement: PlacementPolicy = Consolidated()
    region_choice: RegionChoice = LateBinding()
    uses_loans: bool = True
    """False: what inference clusters would lend stays with them."""
    reclaiming: ReclaimingPolicy = FewestWorkloadsFirst()
    elastic: ElasticPolicy | None = None
    """None: attempts have their base tasks."""
    tuning: TuningMechanism | None = None
    """How CPUs and memory are shared out where workloads leave them open and have a profile; None: they hold their proportional
    share."""
    eviction: EvictionRule = DEFAULT_RULE
    """How far evictions are bounded where the settings of the run, or of the service, do not say."""
    takes_ordering: bool = False
    """Whether the setting `ordering` may put another order in the place of its own (`simulator.policies.orderings`)."""
    tenants_apart: bool = False
    """Whether `QueuePass.heads` are kept by tenant: for allocation policies that choose between tenants."""
