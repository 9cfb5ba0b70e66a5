"""Least attained service, discretised in two levels (Tiresias §3.2, §5.2: threshold of 3,200 GPU-seconds).

Rule: the ordering `fifo` with the levels `attained_service`: level 0 evicts level 1, first in, first out within.
Invariant: a victim has received more than the threshold, the one that it makes room for has not.
Ignores: priorities, quotas, run times.
Differs from the paper: within a level it goes by submit time, as every order here does in the end. Tiresias (§3.2.3) keeps
the jobs of a queue in the order of their first start: there a job that has run goes before one that never has, whichever
was submitted first. Nor is there a promotion of those that wait too long (PROMOTEKNOB).
"""

from __future__ import annotations

from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.ordering.fifo import FifoOrdering
from simulator.policies.policy import Policy

LAS = Policy(
    name="las",
    summary="least attained service in two levels, first in first out within (Tiresias §3.2)",
    ordering=FifoOrdering(),
    levels=AttainedService(),
)
