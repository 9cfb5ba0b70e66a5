"""A process that stands by says so, for `topmast status`: beside its waiting for the lease, which never waits for this."""

from __future__ import annotations

import asyncio
import os
from functools import partial

import psycopg
import structlog

from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.standby_store import stand_by

_log = structlog.get_logger(__name__)


class StandingBy:
    """One process that waits for one lease. `begin` as often as one likes, `end` when it waits no more."""

    def __init__(self, database: Database, name: str, holder: str, address: str, duration_real_s: float) -> None:
        """It counts as one that stands by for `duration_real_s` after it was heard of last, as long as a lease lasts."""
        self._database = database
        self._duration_s = duration_real_s
        self._say = partial(
            stand_by, name=name, holder=holder, address=address, process_id=os.getpid(), duration_s=duration_real_s
        )
        self._saying: asyncio.Task[None] | None = None

    def begin(self) -> bool:
        """From now on it says so now and then; False: it does already."""
        if self._saying is not None:
            return False
        self._saying = asyncio.create_task(self._run(), name="standing by")
        return True

    def end(self) -> None:
        """It says so no more. Nothing is waited for: the database may not answer."""
        if self._saying is not None:
            self._saying.cancel()
            self._saying = None

    async def _run(self) -> None:
        while True:
            try:
                await self._database.run(self._say, give_up_after_s=self._duration_s)
            except (DatabaseUnavailable, psycopg.Error) as error:
                _log.debug("nobody can be told that this process stands by", error=str(error))
            await asyncio.sleep(self._duration_s / 3)
