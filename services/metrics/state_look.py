"""The leader counts the queue, what runs, the hardware and the leases now and then: `StateMetrics` are made of that.

However long the queue is it costs little: after a look that took long the next one waits for longer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import structlog

from domain.clock import Clock
from services.database import metrics_store
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.metrics.service_metrics import ServiceMetrics
from services.metrics.settings import MetricsSettings

_REST: Final = 50.0
"""After a look of t seconds the next one waits for at least so many times that: it takes a fiftieth of the time, unless"""
_LONGEST_REST_REAL_S: Final = 60.0
"""that is longer than this: who watches is not blind for longer, though the database is slow."""
_SIZE_EVERY_REAL_S: Final = 60.0
"""Files on a disk grow slowly, and there are hundreds of them."""

_log = structlog.get_logger(__name__)


class StateLook:
    """`run` as long as this process leads: nobody else says these numbers, so that they are not there twice."""

    def __init__(self, database: Database, clock: Clock, settings: MetricsSettings, metrics: ServiceMetrics) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._metrics = metrics

    async def run(self) -> None:
        """Until cancelled. Where metrics are not served nothing is counted."""
        if self._settings.port is None:
            await asyncio.Event().wait()
        now_real_s = asyncio.get_running_loop().time
        size_due_real_s = now_real_s()
        try:
            while True:
                began_real_s = now_real_s()
                try:
                    await self.look()
                    if began_real_s >= size_due_real_s:
                        await self.look_at_size()
                        size_due_real_s = began_real_s + _SIZE_EVERY_REAL_S
                except DatabaseUnavailable as error:
                    _log.warning("the state could not be counted for metrics", error=str(error))
                took_real_s = now_real_s() - began_real_s
                self._metrics.state_look_seconds.set(took_real_s)
                rest_real_s = min(_REST * took_real_s, _LONGEST_REST_REAL_S)
                await asyncio.sleep(max(self._settings.state_every_real_s, rest_real_s))
        finally:
            self._metrics.state.forget()

    async def look(self) -> None:
        """Counts once."""
        observe = partial(metrics_store.observe, now_s=self._clock.now())
        self._metrics.state.state = await self._database.run(observe, snapshot=True)

    async def look_at_size(self) -> None:
        """Asks the database what it takes."""
        self._metrics.state.size = await self._database.run(metrics_store.database_size, snapshot=True)
