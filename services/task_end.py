"""The end of a task that was begun beside others."""

from __future__ import annotations

import asyncio
from typing import Any


async def end_task(task: asyncio.Future[Any]) -> None:
    """Cancels the task, and returns when it is over; raises what it has failed with.

    Who is cancelled meanwhile waits for the end of the task as well, which tidies up undisturbed, and is cancelled then: it must not take
    its own cancellation for that of the task, as `suppress(CancelledError)` around `await task` would.
    """
    if task is asyncio.current_task():
        raise RuntimeError("a task cannot wait for its own end")
    task.cancel()
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    if not task.cancelled():
        task.result()
