"""For how long a cluster's tasks may run without hearing anything more: what makes it safe to start them elsewhere.

A lease ends when it is not renewed, whatever became of its holder. The tasks of a cluster outlive the lease of its
manager by a stated time at most, by their own clocks; whoever has seen that lease ended for longer than that, on the clock
of the database, knows that none of them runs (Gray and Cheriton, "Leases", SOSP 1989).

Rule: every time is counted from before the question whose answer allows it, so that it is never too late; only rates of
clocks are compared, never what two of them show.
"""

from __future__ import annotations

import math
from collections.abc import Callable


class TaskPermission:
    """What one manager knows; times are real seconds of one monotonic clock."""

    def __init__(self, held_until_s: Callable[[], float], stop_after_s: float, now_s: Callable[[], float]) -> None:
        """`held_until_s`: until when the manager is certain of its own lease."""
        self._certain_until_s = held_until_s
        self._held_until_s = -math.inf
        self._stop_after_s = stop_after_s
        self._now_s = now_s

    def left_s(self) -> float:
        """So long tasks may run on from now if nothing more is heard of the lease; not positive: not at all."""
        # A manager that has given its lease up is certain of nothing; until when the lease is valid does not change by that.
        self._held_until_s = max(self._held_until_s, self._certain_until_s())
        return self._held_until_s + self._stop_after_s - self._now_s()
