"""How long to try: calls, and streams that break off and are taken up again."""

from __future__ import annotations

import random
from dataclasses import dataclass

import grpc

from topmast.channel import MAX_ATTEMPTS
from topmast.errors import LogBrokeOffError, TopmastError
from topmast.messages import refused, shown

_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 5.0
_LONGEST_PATIENCE_S = 1e8
"""Some three years."""

_BROKEN_OFF = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
"""How a stream ends when the server goes away; CANCELLED is what one that shuts down in order says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to try: a call within `timeout_s`, up to `attempts` times; a stream for `patience_s` without success."""

    timeout_s: float = 30.0
    attempts: int = MAX_ATTEMPTS
    patience_s: float = 60.0

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or not 1 <= self.attempts <= MAX_ATTEMPTS:
            raise refused("attempts", f"must be a whole number from 1 to {MAX_ATTEMPTS}, not {shown(self.attempts)}")
        for field, seconds in (("timeout_s", self.timeout_s), ("patience_s", self.patience_s)):
            if type(seconds) not in (int, float) or not 0 <= seconds <= _LONGEST_PATIENCE_S:
                raise refused(field, f"must be seconds from 0 to {_LONGEST_PATIENCE_S:.0f}, not {shown(seconds)}")


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


def may_resume(failure: TopmastError) -> bool:
    """True when opening the stream again may help."""
    return failure.code in _BROKEN_OFF and not isinstance(failure, LogBrokeOffError)
