"""Ordering policies: what sorts the workloads of one (priority, level). One file each, listed in POLICIES.

A policy gives every entry an ordering credit; the greatest goes first, equal ones by submit time and id. So the
one order (priority, level, -credit, submit time, id) holds under every policy, here, in the database and in the
auction. Attained-service, Gittins, shortest-first and finish-time-fair policies are further files of this folder.
"""

from __future__ import annotations

from types import MappingProxyType

from global_scheduler.ordering.credit import CreditOrdering
from global_scheduler.ordering.fifo import FifoOrdering
from global_scheduler.ordering.policy import OrderingPolicy

POLICIES: MappingProxyType[str, OrderingPolicy] = MappingProxyType(
    {policy.name: policy for policy in (CreditOrdering(), FifoOrdering())}
)


def policy_named(name: str) -> OrderingPolicy:
    """The policy of that name; raises ValueError when there is none."""
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(f"there is no ordering policy {name!r}; there are {', '.join(sorted(POLICIES))}") from None
