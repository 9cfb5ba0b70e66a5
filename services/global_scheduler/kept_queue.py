"""The queue as the last scan pass saw it, so that the next one loads what has changed since, and not all of it.

Never trusted for long: what is kept must come to exactly what is queued in every pass, or it is loaded anew, and now and then it is
loaded anew in any case and held against what was kept.
"""

from __future__ import annotations

import asyncio

import structlog

from services.database import queue_change_store
from services.database.connection import AnyConnection
from services.database.queue_change_store import Moment
from services.database.queue_rows import QueueRows, same, updated

_CHECKED_EVERY = 100
"""So many looks after the last time all of it is loaded."""

_log = structlog.get_logger(__name__)


class KeptQueue:
    """Of one scan loop."""

    def __init__(self, checked_every: int = _CHECKED_EVERY) -> None:
        self._checked_every = checked_every
        self._known: tuple[Moment, QueueRows] | None = None
        self._looks = 0
        """Since all of it was loaded."""
        self.loads = 0
        """How often all of it was loaded."""

    def forget(self) -> None:
        """The next look loads all of it: another process may have led meanwhile."""
        self._known = None

    async def rows(self, connection: AnyConnection) -> QueueRows:
        """The queue as the connection's transaction, which must be a snapshot, sees it."""
        moment = await queue_change_store.moment(connection)
        kept = await self._kept(connection, moment)
        if kept is None or self._looks >= self._checked_every:
            rows = await queue_change_store.load_all(connection)
            self._looks, self.loads = 0, self.loads + 1
            if kept is not None and not await asyncio.to_thread(same, kept, rows):
                _log.error("the queue was not kept as it is: it was loaded anew", kept=len(kept), queued=len(rows))
        else:
            rows = kept
        self._known = moment, rows
        self._looks += 1
        return rows

    async def _kept(self, connection: AnyConnection, moment: Moment) -> QueueRows | None:
        """What was known, with what has changed since; None: nothing is known that could be relied on."""
        if self._known is None or self._known[0].server != moment.server:
            return None
        since, known = self._known
        changes = await queue_change_store.load_changes(connection, since)
        rows = await asyncio.to_thread(updated, known, changes.changed, changes.present)
        if rows is None:
            _log.error("what has changed of the queue does not come to what is queued: it is loaded anew")
        return rows
