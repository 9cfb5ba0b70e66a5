"""The two hand-written modules below the clients: readers side by side, and a wait that closing ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing

import pytest

from topmast import UnavailableError
from topmast.async_waiting import AsyncClosedFlag, async_side_by_side
from topmast.waiting import WAITING_ITEMS, ClosedFlag, side_by_side


class Readers:
    """Readers for threads that count how many of them have ended; `stopped` is what they wait for."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.ended: list[str] = []

    def read(self, name: str, items: int, *, endless: bool = False) -> Generator[str, None, None]:
        try:
            for number in range(items):
                yield f"{name}{number}"
            if endless:
                assert self.stopped.wait(timeout=60)
        finally:
            self.ended.append(name)

    def fail(self) -> Generator[str, None, None]:
        yield "before"
        raise UnavailableError("gone")


def join_readers(*names: str) -> None:
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(timeout=60)
            assert not thread.is_alive(), thread.name


def test_threads_yield_everything_each_reader_in_order() -> None:
    readers = Readers()
    items = list(side_by_side({"a": readers.read("a", 50), "b": readers.read("b", 3)}, readers.stopped.set))
    assert [item for item in items if item[0] == "a"] == [f"a{number}" for number in range(50)]
    assert [item for item in items if item[0] == "b"] == ["b0", "b1", "b2"]
    assert sorted(readers.ended) == ["a", "b"]
    assert readers.stopped.is_set()


def test_the_first_error_of_a_thread_ends_the_others() -> None:
    readers = Readers()
    together = side_by_side({"a": readers.read("a", 0, endless=True), "b": readers.fail()}, readers.stopped.set)
    assert next(together) == "before"
    with pytest.raises(UnavailableError, match="gone"):
        next(together)
    join_readers("a", "b")
    assert readers.ended == ["a"]


def test_threads_end_when_the_caller_leaves_although_the_queue_is_full() -> None:
    readers = Readers()
    many = {name: readers.read(name, 2 * WAITING_ITEMS) for name in ("a", "b", "c")}
    with closing(side_by_side(many, readers.stopped.set)) as together:
        next(together)
    join_readers(*many)
    assert sorted(readers.ended) == ["a", "b", "c"]


class AsyncReaders:
    """The same for tasks; a cancelled reader has ended, too."""

    def __init__(self) -> None:
        self.stopped = False
        self.ended: list[str] = []

    async def stop(self) -> None:
        self.stopped = True

    async def read(self, name: str, items: int, *, endless: bool = False) -> AsyncGenerator[str, None]:
        try:
            for number in range(items):
                yield f"{name}{number}"
            if endless:
                await asyncio.Event().wait()
        finally:
            self.ended.append(name)

    async def fail(self) -> AsyncGenerator[str, None]:
        yield "before"
        raise UnavailableError("gone")


def test_tasks_yield_everything_each_reader_in_order() -> None:
    async def use() -> None:
        readers = AsyncReaders()
        together = async_side_by_side({"a": readers.read("a", 50), "b": readers.read("b", 3)}, readers.stop)
        items = [item async for item in together]
        assert [item for item in items if item[0] == "a"] == [f"a{number}" for number in range(50)]
        assert [item for item in items if item[0] == "b"] == ["b0", "b1", "b2"]
        assert sorted(readers.ended) == ["a", "b"]
        assert readers.stopped

    asyncio.run(use())


def test_the_first_error_of_a_task_ends_the_others() -> None:
    async def use() -> None:
        readers = AsyncReaders()
        both = {"a": readers.read("a", 0, endless=True), "b": readers.fail()}
        async with aclosing(async_side_by_side(both, readers.stop)) as together:
            assert await anext(together) == "before"
            with pytest.raises(UnavailableError, match="gone"):
                await anext(together)
        assert readers.ended == ["a"]
        assert readers.stopped

    asyncio.run(use())


def test_tasks_end_when_the_caller_leaves_although_the_queue_is_full() -> None:
    async def use() -> None:
        readers = AsyncReaders()
        many = {name: readers.read(name, 2 * WAITING_ITEMS) for name in ("a", "b", "c")}
        async with aclosing(async_side_by_side(many, readers.stop)) as together:
            await anext(together)
        assert sorted(readers.ended) == ["a", "b", "c"]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(use())


def test_closing_ends_the_wait_of_a_thread() -> None:
    flag = ClosedFlag()
    assert not flag.wait(0)
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(flag.wait(3_600)), daemon=True)
    waiting.start()
    flag.set()
    waiting.join(timeout=60)
    assert answers == [True]
    assert flag.wait(3_600)


def test_closing_ends_the_wait_of_a_task() -> None:
    async def use() -> None:
        assert not await flag.wait(0)
        assert not flag.is_set()
        waiting = asyncio.create_task(flag.wait(3_600))
        await asyncio.sleep(0)
        flag.set()
        assert await waiting
        assert await flag.wait(3_600)

    # Built before there is an event loop, as a client may be.
    flag = AsyncClosedFlag()
    asyncio.run(use())
