"""Whoever is cancelled while it ends a task of its own ends as well, whichever turn it is, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from domain.fleet import Fleet
from services.configuration import Configuration
from services.database.engine import Database
from services.regional_scheduler.machine_moves import MachineMoves
from services.runtime import tier_process
from services.runtime.executor_kind import ExecutorKind
from services.runtime.in_process import InProcessService
from services.runtime.tier_place import TierKind
from services.runtime.tier_process import TierRequest, run_until
from services.task_end import end_task
from services.tiers.loop_watchdog import WatchedEventLoop

_MOST_TURNS = 200
_TURNS_OF_ITS_END = 5


def _ends_slowly(ended: list[str] | None = None) -> asyncio.Task[None]:
    """A task that takes some turns to end when it is cancelled, as one does that talks to a database."""

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(_TURNS_OF_ITS_END):
                await asyncio.sleep(0)
            if ended is not None:
                ended.append("ended")

    return asyncio.create_task(work())


async def _went_on(make: Callable[[], Coroutine[Any, Any, object]]) -> list[int]:
    """The turns after which a cancellation did not end who awaits this: it went on behind it. There must be some before it is over."""
    went_on: list[int] = []
    for turns in range(2, _MOST_TURNS):

        async def outer(turns: int = turns) -> None:
            await make()
            went_on.append(turns)

        task = asyncio.create_task(outer())
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            assert turns > _TURNS_OF_ITS_END
            went_on.pop()
            return went_on
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return went_on


def test_who_is_cancelled_while_a_task_ends_is_cancelled() -> None:
    async def end() -> None:
        task = _ends_slowly()
        await asyncio.sleep(0)
        await end_task(task)

    assert asyncio.run(_went_on(end)) == []


def test_who_is_cancelled_while_a_task_ends_waits_for_that() -> None:
    async def scenario() -> None:
        ended: list[str] = []
        task = _ends_slowly(ended)
        await asyncio.sleep(0)
        ending = asyncio.create_task(end_task(task))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        assert ended

    asyncio.run(scenario())


def test_a_task_that_would_end_itself_is_told_so() -> None:
    async def end_itself() -> None:
        own = asyncio.current_task()
        assert own is not None
        with pytest.raises(RuntimeError, match="its own end"):
            await end_task(own)

    asyncio.run(end_itself())


def test_what_a_task_failed_with_is_raised() -> None:
    async def fails() -> None:
        raise LookupError("broken")

    async def scenario() -> None:
        task = asyncio.ensure_future(fails())
        await asyncio.sleep(0)
        with pytest.raises(LookupError, match="broken"):
            await end_task(task)

    asyncio.run(scenario())


def test_who_is_cancelled_while_it_leaves_a_database_is_cancelled(database_url: str) -> None:
    async def scenario() -> None:
        async def leave(database: Database) -> None:
            await database.__aexit__()
            went_on.append(turns)

        went_on: list[int] = []
        turns = 0
        while True:
            database = await Database(database_url).__aenter__()
            leaving = asyncio.create_task(leave(database))
            for _ in range(turns):
                await asyncio.sleep(0)
            if leaving.done():
                assert turns > 1
                assert went_on == [turns]
                return
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            assert went_on == []
            turns += 1

    asyncio.run(scenario())


def test_control_c_while_a_database_is_left_ends_the_program(database_url: str) -> None:
    went_on: list[str] = []

    async def leave() -> None:
        database = Database(database_url)
        # What it ends takes longer than the signal.
        database._waker = _ends_slowly()
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await database.__aexit__()
        went_on.append("as if nobody had asked")

    # What a shell starts in the background ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(leave())
    finally:
        signal.signal(signal.SIGINT, before)
    assert not went_on


def test_a_decision_that_failed_does_not_hide_why_a_session_ends() -> None:
    async def fails() -> None:
        raise LookupError("the database is lost")

    async def scenario() -> None:
        deciding = asyncio.ensure_future(fails())
        await asyncio.wait({deciding})
        await MachineMoves.close(cast(Any, SimpleNamespace(_deciding=deciding)))

    asyncio.run(scenario())


def test_all_tiers_are_stopped_although_one_had_broken(tmp_path: Path) -> None:
    async def fails() -> None:
        raise LookupError("broken")

    async def scenario() -> None:
        ended: list[str] = []
        service = InProcessService("", Fleet(()), tmp_path, Configuration())
        service._running["global"] = asyncio.ensure_future(fails())
        service._running["regional/east"] = _ends_slowly(ended)
        await asyncio.sleep(0)
        with pytest.raises(LookupError, match="broken"):
            await service.stop_all()
        assert ended

    asyncio.run(scenario())


@pytest.mark.parametrize("stops", [False, True], ids=["while it runs", "while it stops"])
def test_a_tier_that_is_cancelled_leaves_nothing_behind(
    stops: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended: list[str] = []

    async def run_tier(*_arguments: object, **_named: object) -> None:
        await _ends_slowly(ended)

    monkeypatch.setattr(tier_process, "run_tier", run_tier)
    request = TierRequest(
        kind=TierKind.GLOBAL,
        database_url="",
        home=tmp_path,
        configuration=Configuration(),
        listen="127.0.0.1:0",
        executor=ExecutorKind.EMULATED,
    )

    async def scenario() -> None:
        before = asyncio.all_tasks()
        stop = asyncio.Event()
        running = asyncio.ensure_future(run_until(request, lambda _address: None, stop))
        for _ in range(_TURNS_OF_ITS_END):
            await asyncio.sleep(0)
        if stops:
            stop.set()
            for _ in range(_TURNS_OF_ITS_END):
                await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert ended
        assert asyncio.all_tasks() == before

    with asyncio.Runner(loop_factory=WatchedEventLoop) as runner:
        runner.run(scenario())
