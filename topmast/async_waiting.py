"""How a client waits on an event loop: no locks, and readers each on a task of its own.

waiting.py is its counterpart for threads; all of the client that differs otherwise than by `await` is in these two.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, nullcontext
from typing import TypeVar

import grpc.aio

from topmast.errors import TopmastError
from topmast.waiting import WAITING_ITEMS, ReaderEnded

Item = TypeVar("Item")

AsyncLock = nullcontext[None]
"""Tasks take turns where they await, and nothing awaits while it holds the lock: there is nothing to keep out."""

AsyncChannelClosed = grpc.aio.UsageError
"""What gRPC raises where a channel was closed between a look at it and its use."""


async def async_in_thread(call: Callable[[], Item]) -> Item:
    """What a call returns that takes a while and awaits nothing: other tasks go on meanwhile."""
    return await asyncio.to_thread(call)


class AsyncClosedFlag:
    """Set when the connection is closed. `wait(seconds)` returns True as soon as it is set, False when it was not."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._event.wait()
        except TimeoutError:
            return False


async def async_side_by_side(
    readers: Mapping[str, AsyncGenerator[Item, None]], stop: Callable[[], Awaitable[None]]
) -> AsyncGenerator[Item, None]:
    """What the readers yield, as it comes: each is read by a task of its own, by the name it has in `readers`.

    Raises the first TopmastError that a reader raises. At the end, also when the caller leaves in the middle, the
    tasks are cancelled and `stop` is called.
    """
    arrived: asyncio.Queue[Item | ReaderEnded] = asyncio.Queue(WAITING_ITEMS)

    async def read(reader: AsyncGenerator[Item, None]) -> None:
        error: TopmastError | None = None
        try:
            async with aclosing(reader) as items:
                async for item in items:
                    await arrived.put(item)
        except TopmastError as raised:
            error = raised
        await arrived.put(ReaderEnded(error))

    tasks = [asyncio.create_task(read(reader), name=name) for name, reader in readers.items()]
    running = len(tasks)
    try:
        while running:
            got = await arrived.get()
            if not isinstance(got, ReaderEnded):
                yield got
            elif got.error is None:
                running -= 1
            else:
                raise got.error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await stop()
