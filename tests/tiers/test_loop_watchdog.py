"""A loop that stands still is told of, with what held it up; one that works in short steps is not."""

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import TypeVar

import pytest

from services.tiers.loop_watchdog import Block, WatchedEventLoop, watched_loop

_Result = TypeVar("_Result")


def _run(story: Coroutine[object, object, _Result]) -> _Result:
    with asyncio.Runner(loop_factory=WatchedEventLoop) as runner:
        return runner.run(story)


def _hold_up_until(seen: threading.Event) -> None:
    seen.wait()


def test_a_block_is_told_with_how_long_it_was_and_what_ran() -> None:
    async def scenario() -> list[Block]:
        told: list[Block] = []
        async with watched_loop("it", told.append) as counts:
            await asyncio.sleep(0)
            began_s = time.monotonic()
            over = threading.Event()
            threading.Timer(0.5, over.set).start()
            _hold_up_until(over)
            blocked_s = time.monotonic() - began_s
            while counts.blocks == 0:  # noqa: ASYNC110 - there is nothing to be told by but the counts
                await asyncio.sleep(0.001)
            assert told[0].real_s > 0.4
            assert counts.longest_real_s >= told[0].real_s
            assert counts.blocked_real_s >= told[0].real_s
            assert told[0].processor_s < blocked_s, "it waited, and did not work"
        return told

    told = _run(scenario())
    assert any("_hold_up_until" in place for place in told[0].stack)
    assert told[0].stack[0].startswith("threading:"), "the innermost first"


def test_short_steps_are_not_told() -> None:
    async def scenario() -> int:
        async with watched_loop("it", longest_real_s=30.0) as counts:
            for _ in range(100):
                await asyncio.sleep(0.001)
        return counts.blocks

    assert _run(scenario()) == 0


def test_nothing_is_left_of_a_watch_that_is_over() -> None:
    async def scenario() -> None:
        async with watched_loop("a name of its own"):
            assert [thread.name for thread in threading.enumerate()].count("watch a name of its own") == 1

    _run(scenario())
    for thread in threading.enumerate():
        if thread.name == "watch a name of its own":
            thread.join(60.0)
            assert not thread.is_alive()


def test_a_loop_that_cannot_be_watched_is_refused() -> None:
    async def scenario() -> None:
        with pytest.raises(TypeError, match="WatchedEventLoop"):
            async with watched_loop("it"):
                pass

    asyncio.run(scenario())
