"""Levels by the expected end, for shortest remaining time first with preemption (Tiresias §2.2, §5.1: "SRTF").

Rule: the level is the second in which a workload would end if it ran from now on.
Invariant: a victim would have ended strictly later than the one it makes room for.
Ignores: how many GPUs a workload takes.

What runs keeps its level, what waits moves towards worse levels as time passes, all alike; so the comparison is that
of remaining times at any moment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge, PolicyInput
from global_scheduler.levels.policy import RunningLevels


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """The second in which it would end."""

    name: str = "expected_end"
    needs: Knowledge = Knowledge.ORACLE
    moves_with_time: bool = True

    def queued_levels(self, queue: PolicyInput[Numbers]) -> Numbers:
        return queue.arithmetic.ceiling(queue.now + queue.remaining_s(self.name))

    def running_levels(self, running: PolicyInput[Numbers]) -> RunningLevels[Numbers]:
        end_s = running.known.started_s + running.remaining_s(self.name)
        return RunningLevels(running.arithmetic.ceiling(end_s), running.constant(math.inf))
