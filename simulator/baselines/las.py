"""Least attained service, discretised in two levels (Tiresias §3.2, §5.2: threshold of 3,200 GPU-seconds).

Rule: a workload is at level 0 until it has received the threshold in GPU-seconds, then at level 1 for good; within a
level first in, first out. Level 0 evicts level 1.
Invariant: a victim has received more than the threshold, the one that it makes room for has not.
Ignores: priorities, quotas, run times.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from global_scheduler.ordering.fifo import FifoOrdering
from simulator.policies.levels import RunningLevel
from simulator.policies.policy import Policy
from simulator.policies.work import Work

CLOCK_SLACK_S = 1e-5


@dataclass(frozen=True, slots=True)
class AttainedService:
    """Levels by GPU-seconds received; `thresholds` ascend."""

    thresholds_gpu_s: tuple[float, ...] = (3200.0,)
    name: str = "attained_service"
    moves_with_time: bool = False

    def queued_level(self, work: Work, now: float) -> int:
        return self._level_of(work.attained_gpu_s)

    def running_level(self, work: Work, now: float) -> RunningLevel:
        # A crossing that is so near counts as crossed: clock times are rounded, and must not lead to the same level again.
        run_s = now - work.started_s + CLOCK_SLACK_S
        level = self._level_of(work.attained_gpu_s + run_s * work.gpus)
        if level == len(self.thresholds_gpu_s) or work.gpus == 0:
            return RunningLevel(level, math.inf)
        left_gpu_s = self.thresholds_gpu_s[level] - work.attained_gpu_s
        return RunningLevel(level, work.started_s + left_gpu_s / work.gpus)

    def _level_of(self, attained_gpu_s: float) -> int:
        # What was attained is a sum of clock times.
        return bisect_right(self.thresholds_gpu_s, attained_gpu_s + CLOCK_SLACK_S)


LAS = Policy(
    name="las",
    summary="least attained service in two levels, first in first out within (Tiresias §3.2)",
    ordering=FifoOrdering(),
    levels=AttainedService(),
)
