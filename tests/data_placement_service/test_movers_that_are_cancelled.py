"""A mover that is cancelled ends, whichever turn it is (asyncio.wait_for of Python 3.11 loses a cancellation that comes with what it waits for)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from services.data_placement.movers import file_mover
from services.data_placement.movers.file_mover import FileMover
from services.data_placement.movers.orders import MoverTask
from services.data_placement.movers.timed_mover import TimedMover

_TURNS_UNTIL_IT_WAITS = 20
_TURNS_TO_END = 200


class _Course:
    """Of a copy, with what it tells its movers."""

    def __init__(self) -> None:
        self.copied_bytes = 0
        self.rates = [0.0]
        self.listeners: list[Callable[[], object]] = []

    def on_change(self, listener: Callable[[], object]) -> None:
        self.listeners.append(listener)

    def certain_until_real_s(self) -> float:
        return time.monotonic() + 60.0

    def changed(self) -> None:
        for listener in self.listeners:
            listener()


class _Pipe:
    def write(self, _content: bytes) -> None:
        """Nobody reads it."""

    async def drain(self) -> None:
        """It never fills."""


Begun = tuple[Coroutine[Any, Any, object], Callable[[], None]]


def _timed_move() -> Begun:
    course = _Course()
    clock = SimpleNamespace(now=time.monotonic, real_seconds=lambda duration_s: duration_s)
    order = SimpleNamespace(task=MoverTask.COPY, parts=[SimpleNamespace(bytes=10**9)])
    return TimedMover(cast(Any, clock)).carry_out(cast(Any, order), cast(Any, course)), course.changed


def _file_move() -> Begun:
    output = asyncio.StreamReader()
    process = SimpleNamespace(stdin=_Pipe(), stdout=output, stderr=asyncio.StreamReader(), wait=None)
    mover = FileMover(cast(Any, SimpleNamespace(real_seconds=lambda duration_s: duration_s)))
    order = SimpleNamespace(as_json=lambda: "{}")
    following = mover._follow(cast(Any, process), cast(Any, order), cast(Any, _Course()))
    return following, lambda: output.feed_data(json.dumps({"copied": 5}).encode() + b"\n")


def _beats() -> Begun:
    course = _Course()
    return file_mover._beat(cast(Any, _Pipe()), cast(Any, course), 1.0), course.changed


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("begin", [_timed_move, _file_move, _beats])
def test_a_mover_that_is_cancelled_so_long_after_something_happened_ends(
    begin: Callable[[], Begun], turns: int
) -> None:
    async def scenario() -> None:
        work, happens = begin()
        task = asyncio.ensure_future(work)
        await _turns(_TURNS_UNTIL_IT_WAITS)
        assert not task.done()
        happens()
        await _turns(turns)
        task.cancel()
        await _turns(_TURNS_TO_END)
        ended = task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert ended, "it went on"

    asyncio.run(scenario())


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
