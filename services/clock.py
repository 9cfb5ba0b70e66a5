"""The clocks of the live service: real time, or time that runs faster than it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol

from domain.clock import Clock


class ServiceClock(Clock, Protocol):
    """A clock that can also say how long one has to wait for it."""

    def real_seconds(self, duration_s: float) -> float:
        """How many seconds really pass while this clock advances by `duration_s`."""
        ...


@dataclass(frozen=True, slots=True)
class SystemClock:
    """Real time."""

    def now(self) -> float:
        return time.time()

    def real_seconds(self, duration_s: float) -> float:
        return duration_s


@dataclass(frozen=True, slots=True)
class CompressedClock:
    """Time that runs `speed` times as fast as real time, from `origin_s` on, which it showed at `origin_real_s`.

    All processes that are given the same three numbers agree on the time. Raises ValueError unless `speed` is
    positive and all three are finite.
    """

    origin_real_s: float
    origin_s: float
    speed: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(number) for number in (self.origin_real_s, self.origin_s, self.speed)):
            raise ValueError(f"the numbers of a clock must be finite: {self}")
        if self.speed <= 0:
            raise ValueError(f"a clock cannot run at speed {self.speed}: it must be positive")

    def now(self) -> float:
        return self.origin_s + (time.time() - self.origin_real_s) * self.speed

    def real_seconds(self, duration_s: float) -> float:
        return duration_s / self.speed
