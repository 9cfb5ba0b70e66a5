"""Levels by the remaining service, in logarithmic buckets ("SRSF": Tiresias §3.2.1, Table 1).

Rule: level 0 is for up to `first_bucket_gpu_s` remaining GPU-seconds, and every further bucket is `bucket_factor`
times as wide as the one before.
Invariant: a victim is in a worse bucket than the one that it makes room for, so it has strictly more left to do.
Ignores: who has waited how long. Workloads without GPUs take no service and are at level 0. Of two in one bucket, thus
within the factor of each other, the one that runs goes on: that is what keeps preemptions few (Tiresias §3.2.3).

What waits stays where it is; what runs gets better, and its level changes when it crosses into the next bucket.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from global_scheduler.knowledge import Floats, Knowledge, PolicyView
from global_scheduler.levels.policy import CLOCK_SLACK_S, WORST_LEVEL, Levels, RunningLevels

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

    def queued_levels(self, queue: PolicyView) -> Levels:
        return self._levels_of(queue.remaining_s(self.name), queue.known.gpus)

    def running_levels(self, running: PolicyView) -> RunningLevels:
        known, remaining_s = running.known, running.remaining_s(self.name)
        level = self._levels_of(remaining_s - (running.now - known.started_s), known.gpus)
        bound_gpu_s = self._bounds()[np.maximum(level - 1, 0)]
        crossing_s = known.started_s + remaining_s - bound_gpu_s / np.maximum(known.gpus, 1.0)
        return RunningLevels(level, np.where(level == 0, np.inf, crossing_s))

    def _levels_of(self, left_s: Floats, gpus: Floats) -> Levels:
        """The first level that has room for what is left."""
        return np.searchsorted(self._bounds(), (left_s - CLOCK_SLACK_S) * gpus, side="left")

    def _bounds(self) -> Floats:
        return _bucket_bounds(self.first_bucket_gpu_s, self.bucket_factor)


@lru_cache(maxsize=16)
def _bucket_bounds(first_bucket_gpu_s: float, bucket_factor: float) -> Floats:
    """What may be left at most, by level."""
    bounds = [first_bucket_gpu_s]
    while bounds[-1] < _GREATEST_GPU_S:
        bounds.append(first_bucket_gpu_s * bucket_factor ** len(bounds))
    array = np.array(bounds)
    array.flags.writeable = False
    return array
