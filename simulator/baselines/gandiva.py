"""Time slicing (Gandiva, OSDI 2018, §3.2; Tiresias §5.3 compares with it).

Rule: an attempt is safe for one time slice. After it, whoever waits may take its place, the one that waits longest
first; with nobody waiting it simply goes on. So those that want the same GPUs take turns, round robin.
Invariant: nobody is evicted before it has worked for a slice; of two that would both find room, the one that
has waited longer since its submission or its last turn starts first.
Ignores: priorities, quotas, run times; and of Gandiva itself packing, migration and growing into idle GPUs.

A switch costs what the run's settings say. Gandiva suspends and resumes in about a second (§4.1): with costs of
minutes most of a 60-second slice is lost, as it would be on a system without its mechanisms. While nobody waits a
workload costs one event more than under first in, first out.
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

SLICE_S = 60.0
"""Gandiva §3.2: a time slice is about a minute."""

IN_TURN = 0
TURN_IS_OVER = 1


@dataclass(frozen=True, slots=True)
class LongestWaiting:
    """The longer it waits since it last had a turn, the greater the credit."""

    name: str = "longest_waiting"

    def ordering_credit(self, queue: OrderingInput) -> NDArray[np.float64]:
        if queue.work is None:
            raise WorkUnknown(self.name)
        return -queue.work.queued_since_s


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """Level 0 while it waits and for one slice of work, level 1 after that."""

    slice_s: float = SLICE_S
    name: str = "time_slice"
    moves_with_time: bool = False

    def queued_level(self, work: Work, now: float) -> int:
        return IN_TURN

    def running_level(self, work: Work, now: float) -> RunningLevel:
        over_s = work.started_s + self.slice_s
        return RunningLevel(IN_TURN, over_s) if now < over_s else RunningLevel(TURN_IS_OVER, math.inf)


GANDIVA = Policy(
    name="gandiva",
    summary="time slicing, round robin in slices of 60 s (Gandiva §3.2, Tiresias §5.3)",
    ordering=LongestWaiting(),
    levels=TimeSlice(),
)
