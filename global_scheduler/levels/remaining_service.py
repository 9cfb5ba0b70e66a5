"""Levels by the remaining service, in logarithmic buckets ("SRSF": Tiresias §3.2.1, Table 1).

Rule: level 0 is for up to `first_bucket_gpu_s` remaining GPU-seconds, and every further bucket is `bucket_factor`
times as wide as the one before.
Invariant: a victim is in a worse bucket than the one that it makes room for, so it has strictly more left to do.
Ignores: how long workloads have waited. Workloads without GPUs take no service and are at level 0. Of two in one bucket, thus
within the factor of each other, the one that runs goes on: that is what keeps preemptions few (Tiresias §3.2.3).

What waits stays where it is; what runs gets better, and its level changes when it crosses into the next bucket.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge, PolicyInput
from global_scheduler.levels.policy import CLOCK_SLACK_S, WORST_LEVEL, RunningLevels

_GREATEST_GPU_S = 1e18
"""What is beyond is at one level."""


@dataclass(frozen=True, slots=True)
class RemainingService:
    """Levels by the logarithm of the GPU-seconds that are left."""

    first_bucket_gpu_s: float = 60.0
    bucket_factor: float = 2.0
    name: str = "remaining_service"
    needs: Knowledge = Knowledge.ORACLE
    moves_with_time: bool = False

    def __post_init__(self) -> None:
        if not self.first_bucket_gpu_s > 0:
            raise ValueError(f"first_bucket_gpu_s must be more than 0, not {self.first_bucket_gpu_s:g}")
        if not self.bucket_factor > 1:
            raise ValueError(f"bucket_factor must be more than 1, not {self.bucket_factor:g}")
        widths = math.log(_GREATEST_GPU_S) - math.log(self.first_bucket_gpu_s)
        if widths > (WORST_LEVEL - 1) * math.log(self.bucket_factor):
            raise ValueError(
                f"bucket_factor {self.bucket_factor:.12g} makes more than {WORST_LEVEL} levels; choose a greater one"
            )

    def queued_levels(self, queue: PolicyInput[Numbers]) -> Numbers:
        return self._levels_of(queue, queue.remaining_s(self.name))

    def running_levels(self, running: PolicyInput[Numbers]) -> RunningLevels[Numbers]:
        known, of, remaining_s = running.known, running.arithmetic, running.remaining_s(self.name)
        level = self._levels_of(running, remaining_s - (running.now - known.started_s))
        bound_gpu_s = of.pick(self._bounds(), of.larger(level - 1, 0.0))
        crossing_s = known.started_s + remaining_s - bound_gpu_s / of.larger(known.gpus, 1.0)
        return RunningLevels(level, of.choose(level == 0, math.inf, crossing_s))

    def _levels_of(self, works: PolicyInput[Numbers], left_s: Numbers) -> Numbers:
        """The first level that has room for what is left."""
        return works.arithmetic.position(self._bounds(), (left_s - CLOCK_SLACK_S) * works.known.gpus, "left")

    def _bounds(self) -> tuple[float, ...]:
        return _bucket_bounds(self.first_bucket_gpu_s, self.bucket_factor)


@lru_cache(maxsize=16)
def _bucket_bounds(first_bucket_gpu_s: float, bucket_factor: float) -> tuple[float, ...]:
    """What may be left at most, by level."""
    bounds = [first_bucket_gpu_s]
    while bounds[-1] < _GREATEST_GPU_S:
        bounds.append(first_bucket_gpu_s * bucket_factor ** len(bounds))
    return tuple(bounds)
