"""Takes what is old out of the database now and then, where the configuration wants it: the global scheduler does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import structlog

from domain.clock import Clock
from services.configuration import RetentionConfiguration
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.retention.archive import Archive, ArchiveUnusable
from services.retention.pruning import prune

_log = structlog.get_logger(__name__)


class RetentionLoop:
    """`run` until cancelled. Two at once, as when a lease changes hands, do no harm: both take out the same."""

    def __init__(self, database: Database, clock: Clock, configuration: RetentionConfiguration) -> None:
        self._database = database
        self._clock = clock
        self._configuration = configuration

    async def run(self) -> None:
        """Where nothing is to be taken out there is nothing to do."""
        if self._configuration.older_than_s is None:
            await asyncio.Event().wait()
            return
        while True:
            await self.prune_once(self._configuration.older_than_s, self._configuration.workloads_older_than_s)
            await asyncio.sleep(self._configuration.every_real_s)

    async def prune_once(self, older_than_s: float, workloads_older_than_s: float | None = None) -> None:
        """Logs what went. When it cannot go on, that is tried again the next time: nothing is lost meanwhile."""
        folder = self._configuration.archive
        archive = None if folder is None else Archive(Path(folder))
        try:
            now = self._clock.now()
            workloads_cutoff_s = None if workloads_older_than_s is None else now - workloads_older_than_s
            pruned = await prune(self._database, now - older_than_s, archive, workloads_cutoff_s=workloads_cutoff_s)
        except DatabaseUnavailable as error:
            _log.warning("taking out what is old given up until later", error=str(error))
        except ArchiveUnusable as error:
            _log.error("what is old cannot be archived, so it stays", error=str(error))
        else:
            if pruned.total:
                _log.info("what was old is taken out", archive=folder, **pruned.rows)
