"""Level policies: at which level workloads wait and run within their priority. One file each, listed in LEVELS.

Within a priority the better level goes first, and may evict the worse ones (design §4). That is all that preemption
by anything else than priority needs: the planner evicts attempts of a strictly worse (priority, level) only. Where
levels are switched off all are at level 0.
"""

from __future__ import annotations

from types import MappingProxyType

from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.levels.expected_end import ExpectedEnd
from global_scheduler.levels.policy import LevelPolicy
from global_scheduler.levels.remaining_service import RemainingService
from global_scheduler.levels.time_slice import TimeSlice

LEVELS: MappingProxyType[str, LevelPolicy] = MappingProxyType(
    {policy.name: policy for policy in (AttainedService(), ExpectedEnd(), RemainingService(), TimeSlice())}
)
