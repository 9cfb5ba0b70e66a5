"""Levels that make those that want the same GPUs take turns (Gandiva, OSDI 2018, §3.2; Tiresias §5.3 compares with it).

Rule: an attempt is at level 0 for one time slice, then at level 1; what waits is at level 0.
Invariant: no attempt is evicted before it has worked for a slice.
Ignores: run times, attained service; and of Gandiva itself packing, migration and growing into idle GPUs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge, PolicyInput
from global_scheduler.levels.policy import RunningLevels

SLICE_S = 60.0
"""Gandiva §3.2: a time slice is about a minute."""

IN_TURN = 0
TURN_IS_OVER = 1


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """Level 0 while it waits and for one slice of work, level 1 after that."""

    slice_s: float = SLICE_S
    name: str = "time_slice"
    needs: Knowledge = Knowledge.LIVE
    moves_with_time: bool = False

    def __post_init__(self) -> None:
        if not self.slice_s > 0:
            raise ValueError(f"slice_s must be more than 0, not {self.slice_s:g}")

    def queued_levels(self, queue: PolicyInput[Numbers]) -> Numbers:
        return queue.constant(IN_TURN)

    def running_levels(self, running: PolicyInput[Numbers]) -> RunningLevels[Numbers]:
        over_s = running.known.started_s + self.slice_s
        is_over = running.now >= over_s
        choose = running.arithmetic.choose
        return RunningLevels(choose(is_over, TURN_IS_OVER, IN_TURN), choose(is_over, math.inf, over_s))
