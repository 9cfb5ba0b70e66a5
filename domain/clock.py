"""Time is a parameter: seconds since the epoch, UTC. What needs to ask for it is given a Clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Reads the time in seconds since the epoch."""

    def now(self) -> float: ...


class ManualClock:
    """A clock that stands still until it is moved: the simulator's and the tests'."""

    __slots__ = ("_now_s",)

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        return self._now_s

    def advance_to(self, now_s: float) -> None:
        """Moves the clock forward; raises ValueError when that would turn time back."""
        if now_s < self._now_s:
            raise ValueError(f"time cannot go back from {self._now_s} to {now_s}")
        self._now_s = now_s


def utc_time(seconds: float) -> str:
    """Seconds since the epoch for people: 2026-11-23 19:15 UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
