"""Sees when an event loop stands still, and what held it up: leases hang on these loops, and so do all calls.

A loop that is watched notes when a turn begins and when it is over, which is whenever it asks its selector for what to do
next. A thread looks at that now and then; when a turn takes long, it notes what the loop's thread is doing. The loop tells of
the block in its next turn.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

import structlog

LONGEST_BLOCK_REAL_S: Final = 0.05
"""What stands still for longer is told."""

_LOOK_EVERY_REAL_S: Final = 0.04
"""How often the thread looks."""
_OFTEN_REAL_S: Final = 0.01
"""The same while a turn takes long."""
_FRAMES: Final = 8
"""Of a stack, the innermost."""
_STACKS: Final = 200
"""Looks at one block: a longer one is not looked at any more."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Block:
    """One time that a loop stood still."""

    real_s: float
    processor_s: float
    """Processor time of the loop's thread meanwhile: where it is much less, others had the processor or the interpreter."""
    stack: tuple[str, ...]
    """Where the loop's thread was seen most often, innermost first; empty: it was not seen."""


@dataclass(slots=True)
class BlockCounts:
    """Of one loop since its watch began."""

    blocks: int = 0
    blocked_real_s: float = 0.0
    longest_real_s: float = 0.0

    def count(self, block: Block) -> None:
        self.blocks += 1
        self.blocked_real_s += block.real_s
        self.longest_real_s = max(self.longest_real_s, block.real_s)


@asynccontextmanager
async def watched_loop(
    name: str, told: Callable[[Block], None] | None = None, longest_real_s: float = LONGEST_BLOCK_REAL_S
) -> AsyncIterator[BlockCounts]:
    """Watches the running loop, a WatchedEventLoop, under that name while the context lasts: blocks of more than
    `longest_real_s` are logged, and `told` of."""
    counts = BlockCounts()

    def tell(block: Block) -> None:
        counts.count(block)
        _log.warning(
            "event loop blocked",
            loop=name,
            blocked_real_s=round(block.real_s, 4),
            processor_s=round(block.processor_s, 4),
            ran=list(block.stack),
            blocks=counts.blocks,
            blocked_in_all_real_s=round(counts.blocked_real_s, 3),
            longest_real_s=round(counts.longest_real_s, 4),
        )
        if told is not None:
            told(block)

    loop = asyncio.get_running_loop()
    if not isinstance(loop, WatchedEventLoop):
        raise TypeError("only a WatchedEventLoop can be watched")
    watch = _Watch(loop, threading.get_ident(), longest_real_s, tell)
    looking = threading.Thread(target=watch.look, name=f"watch {name}", daemon=True)
    looking.start()
    loop.turns.watches.append(watch)
    try:
        yield counts
    finally:
        loop.turns.watches.remove(watch)
        watch.ended.set()


class WatchedEventLoop(asyncio.SelectorEventLoop):
    """An event loop that `watched_loop` can watch; in all else like any other."""

    def __init__(self) -> None:
        self.turns = _Turns()
        super().__init__(self.turns)


class _Turns(selectors.DefaultSelector):
    """The loop's selector: a turn lasts from the return of one `select` to the call of the next."""

    def __init__(self) -> None:
        super().__init__()
        self.watches: list[_Watch] = []
        self.began_real_s: float | None = None
        """Of the present turn; None: the loop waits for something to do."""
        self._began_processor_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began_s, self.began_real_s = self.began_real_s, None
        if began_s is not None and self.watches:
            took_s = time.monotonic() - began_s
            for watch in self.watches:
                watch.turn_over(began_s, took_s, time.thread_time() - self._began_processor_s)
        ready = super().select(timeout)
        self._began_processor_s = time.thread_time()
        self.began_real_s = time.monotonic()
        return ready


class _Watch:
    """What the loop and the thread that looks at it share."""

    def __init__(
        self, loop: WatchedEventLoop, thread: int, longest_real_s: float, tell: Callable[[Block], None]
    ) -> None:
        self.ended = threading.Event()
        self._loop = loop
        self._thread = thread
        self._longest_s = longest_real_s
        self._tell = tell
        self._stacks: list[tuple[float, tuple[str, ...]]] = []
        """Seen in turns that took long, with the beginning of the turn."""

    def turn_over(self, began_s: float, took_s: float, processor_s: float) -> None:
        """On the loop's thread."""
        if not self._stacks and took_s <= self._longest_s:
            return
        seen = [stack for turn_s, stack in self._stacks if turn_s == began_s]
        self._stacks = []
        if took_s <= self._longest_s:
            return
        stack = Counter(seen).most_common(1)[0][0] if seen else ()
        self._loop.call_soon_threadsafe(self._tell, Block(took_s, processor_s, stack))

    def look(self) -> None:
        """In a thread, until ended."""
        wait_s = _LOOK_EVERY_REAL_S
        while not self.ended.wait(wait_s):
            wait_s = _LOOK_EVERY_REAL_S
            began_s = self._loop.turns.began_real_s
            if began_s is None or time.monotonic() - began_s < min(_OFTEN_REAL_S, self._longest_s):
                continue
            wait_s = _OFTEN_REAL_S
            frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the documented way to another thread's stack
            if frame is not None and len(self._stacks) < _STACKS:
                self._stacks.append((began_s, tuple(_places(frame))))


def _places(frame: FrameType | None) -> Iterator[str]:
    """`module:line in function` of the innermost calls."""
    for _ in range(_FRAMES):
        if frame is None:
            return
        yield f"{frame.f_globals.get('__name__', '?')}:{frame.f_lineno} in {frame.f_code.co_qualname}"
        frame = frame.f_back
