"""Ordering policies: what sorts the workloads of one (priority, level). One file each, listed in ORDERINGS.

A policy gives every entry an ordering credit; the greatest goes first, equal ones by submit time and id. So the
one order (priority, level, -credit, submit time, id) holds under every policy, here, in the database and in the
auction.
"""

from __future__ import annotations

from types import MappingProxyType

from global_scheduler.ordering.credit import CreditOrdering
from global_scheduler.ordering.fewest_gpus import FewestGpus
from global_scheduler.ordering.fifo import FifoOrdering
from global_scheduler.ordering.finish_time_fairness import FinishTimeFairness
from global_scheduler.ordering.first_started import FirstStarted
from global_scheduler.ordering.gittins import GittinsOrdering
from global_scheduler.ordering.longest_waiting import LongestWaiting
from global_scheduler.ordering.policy import OrderingPolicy
from global_scheduler.ordering.shortest_remaining import ShortestRemaining
from global_scheduler.ordering.shortest_remaining_service import ShortestRemainingService

ORDERINGS: MappingProxyType[str, OrderingPolicy] = MappingProxyType(
    {
        policy.name: policy
        for policy in (
            CreditOrdering(),
            FifoOrdering(),
            FinishTimeFairness(),
            FirstStarted(),
            GittinsOrdering(),
            FewestGpus(),
            LongestWaiting(),
            ShortestRemaining(),
            ShortestRemainingService(),
        )
    }
)
