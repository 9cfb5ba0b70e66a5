"""When a stream breaks off: how long to wait before it is taken up again, and when to give up."""

from __future__ import annotations

import random

_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 5.0


class Reconnection:
    """Waits that double from 0.2 s to 5 s, each cut by up to a half at random so that clients do not return at once.

    Gives up when the waits since the last success add up to `patience_s`.
    """

    __slots__ = ("_next_s", "_patience_s", "_waited_s")

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._next_s = _FIRST_WAIT_S
        self._waited_s = 0.0

    def succeeded(self) -> None:
        """Something arrived: the next break is a new one."""
        self._next_s = _FIRST_WAIT_S
        self._waited_s = 0.0

    def next_wait_s(self) -> float | None:
        """Seconds to wait before the next try; None when the patience is used up."""
        if self._waited_s >= self._patience_s:
            return None
        wait_s = self._next_s * random.uniform(0.5, 1.0)
        self._waited_s += wait_s
        self._next_s = min(self._next_s * 2, _LONGEST_WAIT_S)
        return wait_s
