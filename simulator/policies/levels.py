"""Plug-in point: levels. Within a priority the better level goes first, and may evict the worse ones (design §4).

A level policy says at which level a workload waits, and at which one it runs until when. That is all that preemption
by anything else than priority needs: the planner evicts attempts of a strictly worse (priority, level) only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from simulator.policies.work import Work


class RunningLevel(NamedTuple):
    """The level of an attempt, and when it changes next if the attempt goes on; infinity: never."""

    level: int
    until_s: float


class LevelPolicy(Protocol):
    """Gives levels from 0 (the best) on."""

    @property
    def name(self) -> str: ...

    @property
    def moves_with_time(self) -> bool:
        """Whether the level of a waiting workload depends on `now`.

        Then the ordering policy must order waiting workloads as their levels do at any moment.
        """
        ...

    def queued_level(self, work: Work, now: float) -> int:
        """The level at which it waits."""
        ...

    def running_level(self, work: Work, now: float) -> RunningLevel:
        """The level at which it runs from `now` on; `work.started_s` is at or before `now`."""
        ...


@dataclass(frozen=True, slots=True)
class OneLevel:
    """Rule: everybody is at level 0; nobody evicts anybody of the same priority."""

    name: str = "one_level"
    moves_with_time: bool = False

    def queued_level(self, work: Work, now: float) -> int:
        return 0

    def running_level(self, work: Work, now: float) -> RunningLevel:
        return RunningLevel(0, math.inf)
