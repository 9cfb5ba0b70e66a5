"""How long an event loop stands still, for the benchmarks of what runs on it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

_LOOK_EVERY_S: Final = 0.001


@dataclass
class Blocks:
    """How long the loop stood still between two turns of a task that only sleeps: so late would a call be answered."""

    longest_s: float = 0.0
    longest_processor_s: float = 0.0
    """The same in processor time of the loop's thread: on a busy machine, the rest is waiting for a processor."""

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            began_s, worked_s = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_LOOK_EVERY_S)
            self.longest_s = max(self.longest_s, time.perf_counter() - began_s - _LOOK_EVERY_S)
            self.longest_processor_s = max(self.longest_processor_s, time.thread_time() - worked_s)

    def take(self) -> tuple[float, float]:
        """The longest ones since the last call."""
        longest = self.longest_s, self.longest_processor_s
        self.longest_s = self.longest_processor_s = 0.0
        return longest


@asynccontextmanager
async def watched_blocks() -> AsyncIterator[Blocks]:
    """Blocks of the running loop while the context lasts."""
    blocks = Blocks()
    watching = asyncio.ensure_future(blocks.watch())
    try:
        yield blocks
        await asyncio.sleep(2 * _LOOK_EVERY_S)  # a block at the very end counts too
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
