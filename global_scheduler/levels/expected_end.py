"""Levels by the expected end, for shortest remaining time first with preemption (Tiresias §2.2, §5.1: "SRTF").

Rule: the level is the second in which a workload would end if it ran from now on.
Invariant: a victim would have ended strictly later than the one it makes room for.
Ignores: how many GPUs a workload takes.

What runs keeps its level, what waits moves towards worse levels as time passes, all alike; so the comparison is that
of remaining times at any moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from global_scheduler.knowledge import Knowledge, PolicyView
from global_scheduler.levels.policy import Levels, RunningLevels


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """The second in which it would end."""

    name: str = "expected_end"
    needs: Knowledge = Knowledge.ORACLE
    moves_with_time: bool = True

    def queued_levels(self, queue: PolicyView) -> Levels:
        return np.ceil(queue.now + queue.remaining_s(self.name)).astype(np.int64)

    def running_levels(self, running: PolicyView) -> RunningLevels:
        end_s = running.known.started_s + running.remaining_s(self.name)
        return RunningLevels(np.ceil(end_s).astype(np.int64), np.full(len(running), np.inf))
