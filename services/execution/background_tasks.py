"""Tasks that no caller awaits, but that must neither be collected as garbage nor fail in silence."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import structlog

_log = structlog.get_logger(__name__)


class BackgroundTasks:
    """Keeps them until they are done, logs what they raise, cancels them on `close`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def drain(self) -> None:
        """Waits until all of them are done."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task failed", error=repr(error), exc_info=error)
