"""The shape of a level policy."""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol

from domain.rank import OVER_QUOTA_LEVELS
from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge, PolicyInput

WORST_LEVEL = OVER_QUOTA_LEVELS - 1
"""What over-quota workloads stand at may come on top; a rule that may need more of them is refused when it is made."""

CLOCK_SLACK_S = 1e-5
"""A crossing that is so near counts as crossed: sums of clock times are rounded, and must not lead to the same level again."""


class RunningLevels(NamedTuple, Generic[Numbers]):
    """Of one attempt, or of many."""

    level: Numbers
    until_s: Numbers
    """When the level changes next if the attempt goes on; infinity: never."""


class LevelPolicy(Protocol):
    """Says at which level workloads of a priority wait and run; 0 is the best.

    A better level goes first, and may evict a worse one of the same priority. Levels are whole numbers. That of a
    workload may depend on that workload and on `now` alone. To be written for columns and for one workload at once:
    with operators and the `arithmetic` of what is given.
    """

    @property
    def name(self) -> str:
        """What the settings call it."""
        ...

    @property
    def needs(self) -> Knowledge:
        """What it must know."""
        ...

    @property
    def moves_with_time(self) -> bool:
        """Whether the level of a waiting workload depends on `now`.

        Then the ordering policy must order waiting workloads as their levels do at any moment.
        """
        ...

    def queued_levels(self, queue: PolicyInput[Numbers]) -> Numbers:
        """The levels at which they wait."""
        ...

    def running_levels(self, running: PolicyInput[Numbers]) -> RunningLevels[Numbers]:
        """The levels at which attempts run from `now` on; all have started, at or before `now`.

        At the very time that it names as the end of a level, it must say another level.
        """
        ...
