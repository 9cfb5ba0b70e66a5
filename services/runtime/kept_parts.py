"""What the host looks at about once a second as long as it runs: whether its parts do. What can be replaced is replaced here."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress

import structlog

from services.database.engine import Database
from services.runtime.host_report import HostReport
from services.runtime.kept_database import KeptDatabase
from services.runtime.own_ray import OwnRay
from services.runtime.wall_clock import WallClock

_LOOK_EVERY_REAL_S = 1.0
_DATABASE = "database"

_log = structlog.get_logger(__name__)


class KeptParts:
    """The database and Ray, as far as they are the host's own, its record, and the clock of the machine."""

    def __init__(
        self, report: HostReport, embedded: KeptDatabase | None, ray: OwnRay | None, database: Database
    ) -> None:
        """`embedded`, `ray`: None where others look after them."""
        self._report = report
        self._embedded = embedded
        self._ray = ray
        self._database = database
        self._clock = WallClock()
        self._answered = False
        self._over = asyncio.Event()

    async def while_whole(self, work: Coroutine[None, None, None]) -> None:
        """Does the work and looks after the parts meanwhile. Raises RayLost, and what the work raises."""
        self._database.tell_health(self._take_health)
        working = asyncio.create_task(work)
        looking = asyncio.create_task(self._look())
        try:
            await asyncio.wait({working, looking}, return_when=asyncio.FIRST_COMPLETED)
            for task in (working, looking):
                if task.done():
                    task.result()
        finally:
            working.cancel()
            # Not cancelled: a database that is just being started must be there before it can be stopped.
            self._over.set()
            await asyncio.gather(working, looking, return_exceptions=True)

    async def _look(self) -> None:
        while not self._over.is_set():
            if self._ray is not None:
                self._ray.look()
            if self._embedded is not None:
                await self._embedded.look(database_answers=self._database.healthy)
            self._report.mend()
            if jumped_s := self._clock.jumped_s():
                _log.warning("the clock of this machine was set while Topmast ran", jumped_s=round(jumped_s, 1))
                self._report.clock_jumped(jumped_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_REAL_S):
                    await self._over.wait()

    def _take_health(self, healthy: bool) -> None:
        self._answered |= healthy
        if healthy:
            self._report.parts.says_up(_DATABASE)
        elif self._answered:
            self._report.parts.says_down(_DATABASE, "it does not answer")
