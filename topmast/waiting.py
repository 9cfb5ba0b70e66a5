"""How a client waits whose calls block: locks between threads, and readers each on a thread of its own.

async_waiting.py is its counterpart for asyncio; all of the client that differs otherwise than by `await` is in these two.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from topmast.errors import TopmastError

Item = TypeVar("Item")

Lock = threading.Lock

ClosedFlag = threading.Event
"""Set when the connection is closed. `wait(seconds)` returns True as soon as it is set, False when it was not."""

ChannelClosed = ValueError
"""What gRPC raises where a channel was closed by another thread between a look at it and its use."""


def in_thread(call: Callable[[], Item]) -> Item:
    """What a call returns that takes a while: whoever calls waits."""
    return call()


WAITING_ITEMS = 1_000
"""How many items may wait for a slow caller before the readers have to."""


@dataclass(frozen=True, slots=True)
class ReaderEnded:
    """One reader has nothing more, or failed."""

    error: TopmastError | None


def side_by_side(
    readers: Mapping[str, Generator[Item, None, None]], stop: Callable[[], None]
) -> Generator[Item, None, None]:
    """What the readers yield, as it comes: each is read by a thread of its own, by the name it has in `readers`.

    Raises the first TopmastError that a reader raises. `stop` is called at the end, also when the caller leaves in
    the middle; it must end whatever the readers are waiting for.
    """
    arrived: queue.Queue[Item | ReaderEnded] = queue.Queue(WAITING_ITEMS)
    stopping = threading.Event()

    def read(reader: Generator[Item, None, None]) -> None:
        error: TopmastError | None = None
        try:
            with closing(reader) as items:
                for item in items:
                    arrived.put(item)
                    if stopping.is_set():
                        break
        except TopmastError as raised:
            error = raised
        arrived.put(ReaderEnded(error))

    for name, reader in readers.items():
        threading.Thread(target=read, args=(reader,), name=name, daemon=True).start()
    running = len(readers)
    try:
        while running:
            got = arrived.get()
            if not isinstance(got, ReaderEnded):
                yield got
            elif got.error is None:
                running -= 1
            else:
                raise got.error
    finally:
        stopping.set()
        stop()
        _drain(arrived)


def _drain(arrived: queue.Queue[Item | ReaderEnded]) -> None:
    """Makes room, so that no thread waits for ever to put what is never taken out: each puts two more at most."""
    while True:
        try:
            arrived.get_nowait()
        except queue.Empty:
            return
