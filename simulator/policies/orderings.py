"""The orders that policies take from a setting: `--set ordering=srtf`.

Synergy says how much each job holds, whichever policy orders them (Synergy §2.2): its policies take any of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from formats.problems import FieldProblem, FormatError, suggestion
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.levels.expected_end import ExpectedEnd
from global_scheduler.levels.policy import LevelPolicy
from global_scheduler.ordering.fifo import FifoOrdering
from global_scheduler.ordering.finish_time_fairness import FinishTimeFairness
from global_scheduler.ordering.policy import OrderingPolicy
from global_scheduler.ordering.shortest_remaining import ShortestRemaining
from simulator.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class ChosenOrder:
    """An order of the queue, and who may evict whom."""

    ordering: OrderingPolicy
    levels: LevelPolicy | None = None
    scans: bool = False
    """Whether it changes while workloads wait: then scan passes rank them."""


CHOSEN_ORDERS: Mapping[str, ChosenOrder] = MappingProxyType(
    {
        "fifo": ChosenOrder(FifoOrdering()),
        "srtf": ChosenOrder(ShortestRemaining(), ExpectedEnd()),
        "las": ChosenOrder(FifoOrdering(), AttainedService()),
        "ftf": ChosenOrder(FinishTimeFairness(), scans=True),
    }
)
"""First in first out, shortest remaining time first, least attained service, finish-time fairness; the second and the third
evict as the policies of the same names do."""


def with_order(policy: Policy, name: str | None) -> Policy:
    """The policy in that order; None: in its own. Raises FormatError for a name that there is not, and for a policy that
    takes none."""
    if name is None:
        return policy
    if not policy.takes_ordering:
        described = f"{policy.name} has an order of its own; leave ordering out, or take a policy such as synergy_tune"
        raise FormatError("settings", [FieldProblem("ordering", described)])
    if name not in CHOSEN_ORDERS:
        described = f"{name} is no order; {suggestion(name, CHOSEN_ORDERS, 'order')}"
        raise FormatError("settings", [FieldProblem("ordering", described)])
    order = CHOSEN_ORDERS[name]
    return replace(policy, ordering=order.ordering, levels=order.levels, scans=order.scans)
