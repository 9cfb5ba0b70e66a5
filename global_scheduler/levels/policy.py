"""The shape of a level policy."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from global_scheduler.knowledge import Knowledge, PolicyView

Levels = NDArray[np.int64]

WORST_LEVEL = int(np.iinfo(np.int16).max)
"""Levels are stored as small integers; a rule that may need more of them is refused when it is made."""

CLOCK_SLACK_S = 1e-5
"""A crossing that is so near counts as crossed: sums of clock times are rounded, and must not lead to the same level again."""


class RunningLevels(NamedTuple):
    """One element per attempt in each array."""

    level: Levels
    until_s: NDArray[np.float64]
    """When the level changes next if the attempt goes on; infinity: never."""


class LevelPolicy(Protocol):
    """Says at which level workloads of a priority wait and run; 0 is the best.

    A better level goes first, and may evict a worse one of the same priority. An element of an answer may depend on
    that workload and on `now` alone.
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

    def queued_levels(self, queue: PolicyView) -> Levels:
        """The levels at which they wait."""
        ...

    def running_levels(self, running: PolicyView) -> RunningLevels:
        """The levels at which attempts run from `now` on; all have started, at or before `now`.

        At the very time that it names as the end of a level, it must say another level.
        """
        ...
