"""How often progress is told and written: it is shown to people, and nothing that must be exact waits for it.

Starts, checkpoints and ends are told and written at once. Mere progress takes its turn: the more attempts run, the
longer a turn takes, up to a limit, so that what it costs grows with the number of attempts at most by their share of
the longest turn. A region with ten attempts is up to date by the second; 20,000 attempts are 200 rows a second.
"""

from __future__ import annotations

import math
from typing import NamedTuple

THROUGHPUT_CHANGE = 0.05
"""A throughput that differs by this share of the one that is shown is worth a write of its own."""


class ProgressPace(NamedTuple):
    """Every attempt gets its turn after `interval_s`; times are real seconds."""

    attempts_per_s: float
    """As many are taken as long as the longest turn allows it."""
    shortest_s: float
    longest_s: float

    def interval_s(self, running: int) -> float:
        """The time between two turns of one attempt when so many run."""
        return min(self.longest_s, max(self.shortest_s, running / self.attempts_per_s))

    def share(self, running: int, elapsed_s: float) -> int:
        """How many of those that run have their turn after that time."""
        return math.ceil(running * min(1.0, elapsed_s / self.interval_s(running)))


TOLD = ProgressPace(attempts_per_s=20.0, shortest_s=0.5, longest_s=50.0)
"""What a cluster manager tells its region of each attempt that it runs."""

WRITTEN = ProgressPace(attempts_per_s=10.0, shortest_s=1.0, longest_s=100.0)
"""What a region writes of its live attempts. With `TOLD`: what is shown, and what a restart finds, is at most 151 seconds
old, and less than 2 seconds in a region of ten attempts."""


class ShownProgress(NamedTuple):
    """What everybody is shown of a live attempt."""

    progress: float
    throughput: float

    def is_out_of_date(self, now: ShownProgress) -> bool:
        """Whether it differs enough from what is so now to be worth a write."""
        change = abs(now.throughput - self.throughput)
        return now.progress != self.progress or change > THROUGHPUT_CHANGE * abs(self.throughput)
