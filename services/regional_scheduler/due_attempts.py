"""What a session's loop still has to do about attempts, in the order in which it came up."""

from __future__ import annotations

from domain.placement import AttemptKey
from services.regional_scheduler.live_attempts import LiveAttempt, never_ordered


class DueAttempts:
    """Three lists of attempts, each attempt in each list once: whose orders, whose news, whose progress is due."""

    def __init__(self) -> None:
        self._orders: dict[AttemptKey, None] = {}
        self._news: dict[AttemptKey, None] = {}
        self._progress: dict[AttemptKey, None] = {}

    @property
    def has_orders(self) -> bool:
        return bool(self._orders)

    @property
    def has_news(self) -> bool:
        return bool(self._news)

    @property
    def has_progress(self) -> bool:
        return bool(self._progress)

    def look_at(self, attempt: LiveAttempt) -> None:
        """Its clusters may have to be asked something else; if none of them ever was, it may be over at once."""
        self._orders[attempt.key] = None
        if never_ordered(attempt):
            self._news[attempt.key] = None

    def give_orders(self, key: AttemptKey) -> None:
        """Its clusters may have to be asked something else."""
        self._orders[key] = None

    def record(self, key: AttemptKey) -> None:
        """It started or ended, or may have."""
        self._news[key] = None

    def record_progress(self, key: AttemptKey) -> None:
        """It got further: worth a write now and then."""
        self._progress[key] = None

    def take_orders(self) -> tuple[AttemptKey, ...]:
        orders, self._orders = tuple(self._orders), {}
        return orders

    def take_records(self) -> tuple[AttemptKey, ...]:
        """News first, then progress that is not news anyway."""
        records = tuple(dict.fromkeys([*self._news, *self._progress]))
        self._news, self._progress = {}, {}
        return records
