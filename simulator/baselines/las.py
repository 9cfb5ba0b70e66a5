"""Least attained service, discretised in two levels (Tiresias §3.2, §5.2: threshold of 3,200 GPU-seconds).

Rule: the ordering `fifo` with the levels `attained_service`: level 0 evicts level 1, first in, first out within.
Invariant: a victim has received more than the threshold, the one that it makes room for has not.
Ignores: priorities, quotas, run times.
Differs from the paper: within a level it goes by submit time, and those that wait too long are not promoted. Both are as
in the paper under `tiresias_las`.
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
