"""Least attained service, discretised: the 2D-LAS of Tiresias (§3.2.2 attained service, §3.2.3 discretised queues).

Rule: a workload is at level k when it has received at least the first k thresholds in GPU-seconds (GPUs × time, over
all its attempts), and fewer than the next. The default, 3,200 GPU-seconds, is the one of §5.2.
Invariant: a level never gets better while a workload runs or waits; a victim has received more than a threshold that
the one it makes room for has not.
Ignores: how long a workload will run, and how long it has waited: the demoted may starve (§3.2.3, PROMOTEKNOB).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge, PolicyInput
from global_scheduler.levels.policy import CLOCK_SLACK_S, WORST_LEVEL, RunningLevels


@dataclass(frozen=True, slots=True)
class AttainedService:
    """Levels by GPU-seconds received; the thresholds ascend."""

    thresholds_gpu_s: tuple[float, ...] = (3200.0,)
    name: str = "attained_service"
    needs: Knowledge = Knowledge.LIVE
    moves_with_time: bool = False

    def __post_init__(self) -> None:
        bounds = self.thresholds_gpu_s
        if not bounds or bounds[0] <= 0 or any(a >= b for a, b in pairwise(bounds)):
            raise ValueError(f"thresholds_gpu_s must be one or more numbers greater than 0 that ascend, not {bounds}")
        if len(bounds) > WORST_LEVEL:
            raise ValueError(f"thresholds_gpu_s are {len(bounds)}; at most {WORST_LEVEL} are possible")

    def queued_levels(self, queue: PolicyInput[Numbers]) -> Numbers:
        return self._levels_of(queue, queue.known.attained_gpu_s)

    def running_levels(self, running: PolicyInput[Numbers]) -> RunningLevels[Numbers]:
        known, of = running.known, running.arithmetic
        run_s = running.now - known.started_s + CLOCK_SLACK_S
        level = self._levels_of(running, known.attained_gpu_s + run_s * known.gpus)
        # The last level has no end, and what takes no GPUs never receives anything.
        next_threshold = of.pick((*self.thresholds_gpu_s, math.inf), level)
        left_gpu_s = of.choose(known.gpus > 0, next_threshold - known.attained_gpu_s, math.inf)
        return RunningLevels(level, known.started_s + left_gpu_s / of.larger(known.gpus, 1.0))

    def _levels_of(self, works: PolicyInput[Numbers], attained_gpu_s: Numbers) -> Numbers:
        # What was attained is a sum of clock times.
        return works.arithmetic.position(self.thresholds_gpu_s, attained_gpu_s + CLOCK_SLACK_S, "right")
