"""PACKLIMIT learnt beside the scan passes, from what has been measured since the last time (Tiresias §3.3.2)."""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from cluster_manager.skew.packlimit_history import PacklimitHistory
from domain.clock import Clock
from services.configuration import Configuration
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.packlimit_store import load_changed_times, load_packlimit, store_packlimit

_LEARNING_REAL_S = 60.0
"""So often it is looked whether there is anything to learn from; it need not be at once what the latest attempts show."""

_log = structlog.get_logger(__name__)


class PacklimitLearning:
    """Keeps the stored limit up to date. `run` until cancelled."""

    def __init__(self, database: Database, clock: Clock, configuration: Configuration) -> None:
        self._database = database
        self._clock = clock
        self._needed = configuration.placement.fixed_packlimit is None
        self._history = PacklimitHistory()
        self._after = 0
        self._learnt = True
        """Whether the stored limit is that of the history."""

    async def run(self) -> None:
        """Where the limit is a fixed one there is nothing to do."""
        if not self._needed:
            await asyncio.Event().wait()
        while True:
            try:
                await self.learn()
            except DatabaseUnavailable as error:
                _log.warning("learning PACKLIMIT given up until later", error=str(error))
            await asyncio.sleep(_LEARNING_REAL_S)

    async def learn(self) -> None:
        """Fits the limit anew where anything has been measured since the last time, and stores it where it is another."""
        changed = await self._database.run(partial(load_changed_times, after=self._after), snapshot=True)
        self._after = changed.next_after
        if self._history.take(changed.sums):
            self._learnt = False
        if self._learnt:
            return
        # In a thread: the lease is kept meanwhile, and calls are answered.
        learnt = await asyncio.to_thread(self._history.fit)
        if learnt != await self._database.run(load_packlimit):
            await self._database.run(partial(store_packlimit, learnt=learnt, now=self._clock.now()))
            _log.info("PACKLIMIT learnt", packlimit=learnt.limit, jobs=learnt.learnt_from, misplaced=learnt.misplaced)
        self._learnt = True
