"""What a session's loop still has to do about attempts, in the order in which it came up."""

from __future__ import annotations

import time
from itertools import islice
from typing import Final, TypeVar

from domain.placement import AttemptKey
from services.regional_scheduler.live_attempts import LiveAttempt, never_ordered

_Since = TypeVar("_Since", None, float)

MOST_AT_ONCE: Final = 512
"""So many attempts are written of, or are given orders, in one turn of the loop: it never stands still for long."""


class DueAttempts:
    """Three lists of attempts, each attempt in each list once: whose orders, whose news, whose progress is due."""

    def __init__(self) -> None:
        self._orders: dict[AttemptKey, None] = {}
        self._news: dict[AttemptKey, None] = {}
        self._progress: dict[AttemptKey, float] = {}
        """With when its turn was asked for, on the machine's monotonic clock."""

    @property
    def has_orders(self) -> bool:
        return bool(self._orders)

    @property
    def has_news(self) -> bool:
        return bool(self._news)

    @property
    def has_progress(self) -> bool:
        return bool(self._progress)

    def progress_waits_real_s(self) -> float | None:
        """For how long the attempt has waited whose turn it is; None: no progress is due."""
        since_real_s = next(iter(self._progress.values()), None)
        return None if since_real_s is None else time.monotonic() - since_real_s

    def look_at(self, attempt: LiveAttempt) -> None:
        """Its clusters may have to be asked something else; if none of them ever was, it may be over at once."""
        self._orders[attempt.key] = None
        if never_ordered(attempt):
            self._news[attempt.key] = None

    def give_orders(self, key: AttemptKey) -> None:
        """Its clusters may have to be asked something else."""
        self._orders[key] = None

    def record(self, key: AttemptKey) -> None:
        """It started, saved a checkpoint, carried out a change or ended, or may have."""
        self._news[key] = None

    def record_progress(self, key: AttemptKey) -> None:
        """It got further: worth a write when its turn comes."""
        self._progress.setdefault(key, time.monotonic())

    def take_orders(self) -> tuple[AttemptKey, ...]:
        """Of those that have waited longest, MOST_AT_ONCE at most."""
        return _take(self._orders, MOST_AT_ONCE)

    def take_news(self) -> tuple[AttemptKey, ...]:
        """Of those that have waited longest, MOST_AT_ONCE at most; what is written of an attempt takes its progress along."""
        news = _take(self._news, MOST_AT_ONCE)
        for key in news:
            self._progress.pop(key, None)
        return news

    def take_progress(self, count: int) -> tuple[AttemptKey, ...]:
        """The attempts that have waited longest for their turn, so many at most."""
        return _take(self._progress, count)


def _take(due: dict[AttemptKey, _Since], count: int) -> tuple[AttemptKey, ...]:
    keys = tuple(islice(due, count))
    for key in keys:
        del due[key]
    return keys
