"""Several works that belong together: when one of them ends, or fails, none of the others goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


async def until_one_ends(*works: Coroutine[object, object, object]) -> None:
    """Runs them side by side until the first ends; raises what ended it. The others are cancelled and have ended."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
