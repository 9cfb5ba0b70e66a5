"""The watchers of workloads: one reader of the event log for all of them.

A watcher only learns *that* something happened to its workload; what it is stands in the tables. So a slow watcher
costs nothing, however much happens.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import structlog

from domain.identifiers import WorkloadId
from services.database import event_store
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.event_follower import follow

_LOOK_INTERVAL_REAL_S = 1.0
"""A watcher of a workload also gets what is no event: so often."""

_TOGETHER_REAL_S = 0.25
"""Those who look for no other reason than the time do it at multiples of this."""

_log = structlog.get_logger(__name__)


class WorkloadWatcher:
    """One client that watches one workload."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def wake(self) -> None:
        self._news.set()

    async def wait(self) -> bool:
        """Returns True when there is news, and False when it is time to look all the same: progress and ranks are no events."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(_next_look_s(loop.time())):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


def _next_look_s(now_s: float) -> float:
    """Within the interval, and at one of a few moments of it: then all whose turn it is look together."""
    return math.floor((now_s + _LOOK_INTERVAL_REAL_S) / _TOGETHER_REAL_S) * _TOGETHER_REAL_S


class WorkloadWatchers:
    """All watchers of this process. `run` wakes them until cancelled."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watchers: dict[WorkloadId, list[WorkloadWatcher]] = {}
        self._any_watcher = asyncio.Event()

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(map(len, self._watchers.values()))

    @asynccontextmanager
    async def watch(self, workload: WorkloadId) -> AsyncIterator[WorkloadWatcher]:
        """A watcher of that workload, as long as the context lasts."""
        watcher = WorkloadWatcher()
        self._watchers.setdefault(workload, []).append(watcher)
        self._any_watcher.set()
        try:
            yield watcher
        finally:
            others = self._watchers[workload]
            others.remove(watcher)
            if not others:
                del self._watchers[workload]

    async def run(self) -> None:
        while True:
            await self._any_watcher.wait()
            try:
                await self._report_while_watched()
            except DatabaseUnavailable as error:
                _log.warning("the event log cannot be followed", error=str(error))

    async def _report_while_watched(self) -> None:
        start = await self._database.run(event_store.newest_sequence)
        self._tell_all()  # something may have happened before we began to listen
        async with aclosing(follow(self._database, start)) as pages:
            async for page in pages:
                for workload in {stored.event.workload for stored in page.events}:
                    if workload is not None:
                        for watcher in self._watchers.get(workload, ()):
                            watcher.wake()
                if not self._watchers:  # checked with each event only: that costs nothing
                    self._any_watcher.clear()
                    return

    def _tell_all(self) -> None:
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.wake()
