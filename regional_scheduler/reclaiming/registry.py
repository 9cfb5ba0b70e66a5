"""Which reclaiming policies there are."""

from __future__ import annotations

from types import MappingProxyType

from formats.problems import FieldProblem, FormatError, suggestion
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.policy import ReclaimingPolicy
from regional_scheduler.reclaiming.random_machines import RandomMachines

_POLICIES: tuple[ReclaimingPolicy, ...] = (FewestWorkloadsFirst(), RandomMachines())

RECLAIMING_POLICIES: MappingProxyType[str, ReclaimingPolicy] = MappingProxyType(
    {policy.name: policy for policy in _POLICIES}
)
"""By name. The first is what is used where nothing else is said."""


def reclaiming_policy(name: str, source: str) -> ReclaimingPolicy:
    """The policy of that name; raises FormatError, which names `source`, when there is none."""
    if name not in RECLAIMING_POLICIES:
        told = f"is no reclaiming policy; {suggestion(name, RECLAIMING_POLICIES, 'reclaiming policy')}"
        raise FormatError(source, [FieldProblem(name, told)])
    return RECLAIMING_POLICIES[name]
