"""How long to wait before trying again."""

from __future__ import annotations

import random


class Backoff:
    """Waits that double from `first_s` up to `greatest_s`, each shortened at random by up to a half.

    The randomness keeps many callers that failed together from coming back together.
    """

    def __init__(self, first_s: float = 0.02, greatest_s: float = 2.0) -> None:
        self._next_s = first_s
        self._greatest_s = greatest_s

    def next_wait_s(self) -> float:
        """Seconds to wait before the next try."""
        wait_s = self._next_s
        self._next_s = min(2 * self._next_s, self._greatest_s)
        return wait_s * random.uniform(0.5, 1.0)
