"""Moves nothing: copies take as long as their bytes take over the links, on the clock of the service.

For services whose regions have no storage of their own: emulated ones.
"""

from __future__ import annotations

import asyncio
import contextlib

from services.clock import ServiceClock
from services.data_placement.movers.mover import Course
from services.data_placement.movers.orders import MoverOrder, MoverOutcome, MoverTask

_LOOK_REAL_S = 1.0


class TimedMover:
    """A `Mover` that lets time pass."""

    def __init__(self, clock: ServiceClock) -> None:
        self._clock = clock

    async def carry_out(self, order: MoverOrder, course: Course) -> MoverOutcome:
        if order.task is not MoverTask.COPY:
            return MoverOutcome()
        changed = asyncio.Event()
        course.on_change(changed.set)
        left = [float(part.bytes) for part in order.parts]
        then_s = self._clock.now()
        while any(each > 0 for each in left):
            changed.clear()
            rates = course.rates
            wait_s = max(
                (each / rate for each, rate in zip(left, rates, strict=True) if each > 0 and rate > 0), default=None
            )
            timeout_real_s = (
                _LOOK_REAL_S if wait_s is None else min(_LOOK_REAL_S, self._clock.real_seconds(wait_s) + 0.001)
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_real_s):
                    await changed.wait()
            now_s = self._clock.now()
            left = [max(0.0, each - rate * (now_s - then_s)) for each, rate in zip(left, rates, strict=True)]
            then_s = now_s
            course.copied_bytes = int(sum(part.bytes for part in order.parts) - sum(left))
        return MoverOutcome()
