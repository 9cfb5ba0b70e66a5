"""Shortest remaining time first, preemptive, with an oracle (Tiresias §5.1).

Rule: who would be done first if it ran now goes first, and evicts whoever would be done later.
Invariant: a victim would have ended strictly later than the one it makes room for.
Ignores: priorities, quotas, how many GPUs a workload takes.

Levels are the second of the expected end: what runs keeps its level, what waits moves towards worse levels as time
passes, all alike; so the comparison is that of remaining times at any moment.
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


@dataclass(frozen=True, slots=True)
class ShortestRemaining:
    """The less is left, the greater the credit."""

    name: str = "srtf"

    def ordering_credit(self, queue: OrderingInput) -> NDArray[np.float64]:
        if queue.work is None:
            raise WorkUnknown(self.name)
        return -queue.work.remaining_s


@dataclass(frozen=True, slots=True)
class ExpectedEnd:
    """The second in which it would end."""

    name: str = "expected_end"
    moves_with_time: bool = True

    def queued_level(self, work: Work, now: float) -> int:
        return math.ceil(now + work.remaining_s)

    def running_level(self, work: Work, now: float) -> RunningLevel:
        return RunningLevel(math.ceil(work.started_s + work.remaining_s), math.inf)


SRTF = Policy(
    name="srtf",
    summary="shortest remaining time first, preemptive, with an oracle (Tiresias §5.1)",
    ordering=ShortestRemaining(),
    levels=ExpectedEnd(),
)
