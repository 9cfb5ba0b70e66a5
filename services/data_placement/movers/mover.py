"""What the migrations ask of a mover; files or time, whatever moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from services.data_placement.movers.orders import MoverOrder, MoverOutcome


class Course:
    """How fast a task may go, and how far it is; the migrations set the one, the mover the other."""

    def __init__(self, parts: int, certain_until_real_s: Callable[[], float] = lambda: math.inf) -> None:
        self.certain_until_real_s = certain_until_real_s
        """Until when, on the machine's monotonic clock, nobody else can be carrying the migration out."""
        self.rates: tuple[float, ...] = (0.0,) * parts
        """Bytes per second of each part."""
        self.copied_bytes = 0
        self._listeners: list[Callable[[], None]] = []

    def grant(self, rates: Sequence[float]) -> None:
        """From now on it may go so fast."""
        if tuple(rates) != self.rates:
            self.rates = tuple(rates)
            for listener in self._listeners:
                listener()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Called whenever the rates change."""
        self._listeners.append(listener)


class Mover(Protocol):
    """Carries out one task of a migration."""

    async def carry_out(self, order: MoverOrder, course: Course) -> MoverOutcome:
        """Returns when it is done, or has failed. Cancelled, it stops at once, and nothing of it goes on."""
        ...
