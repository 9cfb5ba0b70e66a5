"""Shortest remaining service first, preemptive, with an oracle ("SRSF": Tiresias §3.2.1, Table 1).

Rule: the least remaining time × GPUs goes first. Levels are logarithmic buckets of the remaining GPU-seconds: level 0
up to `first_bucket_gpu_s`, and every further bucket is `bucket_factor` times as wide as the one before. A better
level evicts a worse one; within a level the less is left, the sooner one starts, and nobody is evicted.
Invariant: a victim is in a worse bucket than the one that it makes room for, so it has strictly more left to do.
Ignores: priorities, quotas. Workloads without GPUs take no service and go first. Of two in one bucket, thus within
the factor of each other, the one that runs goes on: that is what keeps preemptions few (Tiresias §3.2.3).

What waits stays where it is; what runs gets better, and its level changes when it crosses into the next bucket.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from global_scheduler.ordering.policy import OrderingInput, WorkUnknown
from simulator.policies.levels import RunningLevel
from simulator.policies.policy import Policy
from simulator.policies.work import Work

CLOCK_SLACK_S = 1e-5
"""A crossing that is so near counts as crossed: sums of clock times are rounded, and must not lead to the same level again."""


@dataclass(frozen=True, slots=True)
class ShortestRemainingService:
    """The fewer GPU-seconds are left, the greater the credit."""

    name: str = "srsf"

    def ordering_credit(self, queue: OrderingInput) -> NDArray[np.float64]:
        if queue.work is None:
            raise WorkUnknown(self.name)
        return -(queue.work.remaining_s * queue.work.gpus)


@dataclass(frozen=True, slots=True)
class RemainingService:
    """Levels by the logarithm of the GPU-seconds that are left."""

    first_bucket_gpu_s: float = 60.0
    bucket_factor: float = 2.0
    name: str = "remaining_service"
    moves_with_time: bool = False

    def __post_init__(self) -> None:
        if not self.first_bucket_gpu_s > 0:
            raise ValueError(f"first_bucket_gpu_s must be more than 0, not {self.first_bucket_gpu_s:g}")
        if not self.bucket_factor > 1:
            raise ValueError(f"bucket_factor must be more than 1, not {self.bucket_factor:g}")

    def queued_level(self, work: Work, now: float) -> int:
        return self._level_of(work.remaining_s, work.gpus)

    def running_level(self, work: Work, now: float) -> RunningLevel:
        level = self._level_of(work.remaining_s - (now - work.started_s), work.gpus)
        if level == 0:
            return RunningLevel(0, math.inf)
        bound_gpu_s = self._greatest_of(level - 1)
        return RunningLevel(level, work.started_s + work.remaining_s - bound_gpu_s / work.gpus)

    def _greatest_of(self, level: int) -> float:
        """What may be left at that level at most."""
        return self.first_bucket_gpu_s * self.bucket_factor**level

    def _level_of(self, left_s: float, gpus: int) -> int:
        """The first level that has room for what is left."""
        left_gpu_s = (left_s - CLOCK_SLACK_S) * gpus
        if left_gpu_s <= self.first_bucket_gpu_s:
            return 0
        # The logarithm is rounded: it may be one too many, or too few.
        level = math.ceil(math.log(left_gpu_s / self.first_bucket_gpu_s, self.bucket_factor))
        if left_gpu_s <= self._greatest_of(level - 1):
            return level - 1
        return level if left_gpu_s <= self._greatest_of(level) else level + 1


SRSF = Policy(
    name="srsf",
    summary="shortest remaining service (time × GPUs) first, preemptive, with an oracle (Tiresias §3.2.1)",
    ordering=ShortestRemainingService(),
    levels=RemainingService(),
)
