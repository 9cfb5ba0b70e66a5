"""Takes over what was applied while the region works: into its memory, between two rounds, without a new session."""

from __future__ import annotations

from functools import partial

import structlog

from data_placement.catalog import CatalogChange
from services.database import catalog_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.regional_scheduler.inbox import Inbox
from services.regional_scheduler.loading import load_revisions
from services.regional_scheduler.region_memory import RegionMemory, Revisions

_log = structlog.get_logger(__name__)


class AppliedChanges:
    """What the database has newer revisions of than the region's memory."""

    def __init__(self, database: Database, memory: RegionMemory, inbox: Inbox) -> None:
        self._database = database
        self._memory = memory
        self._inbox = inbox

    async def take_over(self) -> None:
        """Brings the memory to the present revisions, if anybody said that there may be newer ones.

        A workload may be placeable now that was not: so a scan pass is asked for, which gives all a new chance.
        """
        if not self._inbox.look_at_applied:
            return
        self._inbox.look_at_applied = False
        if await self._database.run(load_revisions, give_up_after_s=0.0) == self._memory.revisions:
            return
        change, revisions = await self._database.run(
            partial(_load_changes, known=self._memory.revisions), snapshot=True, give_up_after_s=0.0
        )
        self._memory.catalog.apply(change)
        self._memory.revisions = revisions
        _log.info(
            "took over what was applied",
            region=self._memory.region.region,
            catalog=revisions.catalog,
            tables_changed=len(change.tables),
            tables_dropped=len(change.dropped),
        )
        async with self._database.transaction() as connection:
            wake_after_commit(connection, SCAN_CHANNEL)


async def _load_changes(connection: AnyConnection, known: Revisions) -> tuple[CatalogChange, Revisions]:
    revisions = await load_revisions(connection)
    return await catalog_store.load_changes(connection, known.catalog), revisions
