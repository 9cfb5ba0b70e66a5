"""Whether somebody has set the clock of the machine while we ran."""

from __future__ import annotations

import time

_JUMP_S = 2.0


class WallClock:
    """The clock of the machine beside one that nobody can set."""

    def __init__(self) -> None:
        self._ahead_s = _ahead_s()

    def jumped_s(self) -> float:
        """By how much it was set since it was asked last, forward (more than 0) or back; 0 for less than 2 s."""
        ahead_s = _ahead_s()
        jumped_s, self._ahead_s = ahead_s - self._ahead_s, ahead_s
        return jumped_s if abs(jumped_s) >= _JUMP_S else 0.0


def _ahead_s() -> float:
    # What a machine sleeps is no jump: this one goes on meanwhile, where there is one.
    steady = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.time() - time.clock_gettime(steady)
