"""Pipelined transactions: all or nothing as any other, whoever finds the error out, and the connection is as it was."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from inspect import CORO_CLOSED, getcoroutinestate

import psycopg
import pytest

from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.lease_store import Lease, LeaseLost, assert_held
from services.database.pipeline import together

_ADD = "INSERT INTO revisions (subject, revision) VALUES (%s, 1)"


async def _add(connection: AnyConnection, subject: str) -> None:
    await connection.execute(_ADD, (subject,))


async def _count(connection: AnyConnection) -> int:
    cursor = await connection.execute("SELECT count(*) FROM revisions WHERE subject LIKE 'piped%'")
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


def _outcome(url: str, block: Callable[[AnyConnection], Awaitable[object]]) -> tuple[Exception | None, int]:
    """What the pipelined transaction raised, and how many rows there are afterwards, on the same connection."""

    async def scenario() -> tuple[Exception | None, int]:
        raised: Exception | None = None
        async with Database(url, connections=1) as database:
            try:
                async with database.transaction(pipelined=True) as connection:
                    await block(connection)
            except (psycopg.Error, KeyError, LeaseLost) as error:
                raised = error
            async with database.transaction() as connection:
                assert not connection.autocommit
                return raised, await _count(connection)

    return asyncio.run(scenario())


def test_what_is_executed_is_there_after_the_block(database_url: str) -> None:
    async def block(connection: AnyConnection) -> None:
        await _add(connection, "piped-1")
        await _add(connection, "piped-2")
        assert await _count(connection) == 2

    assert _outcome(database_url, block) == (None, 2)


def test_an_error_that_nobody_fetched_is_raised_at_the_end_and_nothing_has_happened(database_url: str) -> None:
    async def block(connection: AnyConnection) -> None:
        await _add(connection, "piped-1")
        await _add(connection, "piped-1")
        await _add(connection, "piped-2")

    raised, rows = _outcome(database_url, block)
    assert isinstance(raised, psycopg.errors.UniqueViolation)
    assert rows == 0


def test_nothing_has_happened_when_the_block_raises(database_url: str) -> None:
    async def block(connection: AnyConnection) -> None:
        await _add(connection, "piped-1")
        raise KeyError("changed my mind")

    raised, rows = _outcome(database_url, block)
    assert isinstance(raised, KeyError)
    assert rows == 0


def test_whoever_has_lost_the_lease_is_told_that_and_writes_nothing(database_url: str) -> None:
    """Also when what was sent along with the question fails because of it, or would have gone on."""

    async def block(connection: AnyConnection) -> None:
        async def twice() -> None:
            await _add(connection, "piped-1")
            await _count(connection)
            await _add(connection, "piped-1")
            await _count(connection)

        await together(connection, assert_held(connection, Lease("regional/none", "nobody", 1)), twice())

    raised, rows = _outcome(database_url, block)
    assert isinstance(raised, LeaseLost)
    assert rows == 0


def test_of_several_errors_the_cause_is_raised(database_url: str) -> None:
    async def failing(connection: AnyConnection, divisor: int) -> None:
        cursor = await connection.execute("SELECT 1 / %s::int", (divisor,))
        await cursor.fetchone()

    async def block(connection: AnyConnection) -> None:
        await together(
            connection, failing(connection, 1), failing(connection, 0), _count(connection), failing(connection, 0)
        )

    raised, _ = _outcome(database_url, block)
    assert isinstance(raised, psycopg.errors.DivisionByZero)


def test_first_statements_are_carried_out_in_their_order_before_any_other(database_url: str) -> None:
    async def twice(connection: AnyConnection, name: str) -> list[int]:
        counts = []
        for place in ("1", "2"):
            await _add(connection, f"piped-{name}{place}")
            counts.append(await _count(connection))
        return counts

    async def block(connection: AnyConnection) -> None:
        first, second = await together(connection, twice(connection, "a"), twice(connection, "b"))
        assert first[0] == second[0] == 2, "what is fetched last has seen all first statements"

    assert _outcome(database_url, block) == (None, 4)


def test_results_come_in_their_order(database_url: str) -> None:
    async def number(connection: AnyConnection, wanted: int) -> int:
        cursor = await connection.execute("SELECT %s::int", (wanted,))
        row = await cursor.fetchone()
        assert row is not None
        return int(row[0])

    async def block(connection: AnyConnection) -> None:
        assert await together(connection, number(connection, 1), number(connection, 2), number(connection, 3)) == (
            1,
            2,
            3,
        )

    assert _outcome(database_url, block) == (None, 0)


def test_a_cancelled_transaction_leaves_nothing_behind(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url, connections=1) as database:
            executed = asyncio.Event()

            async def transaction() -> None:
                async with database.transaction(pipelined=True) as connection:
                    await _add(connection, "piped-1")
                    executed.set()
                    await together(connection, connection.execute("SELECT pg_sleep(60)"), _count(connection))

            task = asyncio.create_task(transaction())
            await executed.wait()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with database.transaction() as connection:
                assert await _count(connection) == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("begun", [False, True], ids=["while another statement is sent", "as they stand in line"])
def test_who_is_cancelled_leaves_nothing_under_way(database_url: str, begun: bool) -> None:
    async def scenario() -> None:
        async with (
            Database(database_url, connections=1) as database,
            database.transaction(pipelined=True) as connection,
        ):
            work = _count(connection), _count(connection)
            async with nullcontext() if begun else connection.lock:
                cancelled = asyncio.create_task(together(connection, *work))
                await asyncio.sleep(0)
                cancelled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
                ended = [getcoroutinestate(one) for one in work]
            assert ended == [CORO_CLOSED, CORO_CLOSED]
            assert await _count(connection) == 0

    asyncio.run(scenario())


def test_who_is_cancelled_twice_is_no_error_that_nobody_hears_of(database_url: str) -> None:
    unheard: list[str] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context["message"]))
        async with Database(database_url, connections=1) as database:
            for turns in range(1, 12):
                async with database.transaction(pipelined=True) as connection:
                    cancelled = asyncio.create_task(together(connection, _slow_to_end(), _slow_to_end()))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    for _ in range(2):
                        cancelled.cancel()
                        await asyncio.sleep(0)
                    await asyncio.wait({cancelled})
                    assert await _count(connection) == 0
                del cancelled
                gc.collect()

    asyncio.run(scenario())
    assert unheard == []


async def _slow_to_end() -> None:
    try:
        for _ in range(6):
            await asyncio.sleep(0)
    finally:
        for _ in range(3):
            await asyncio.sleep(0)


def test_whoever_waits_for_an_answer_that_is_lost_with_its_connection_is_told_so(database_url: str) -> None:
    """Also when another one has heard it first: what is unavailable is tried again, what is refused is not."""

    async def scenario() -> None:
        lost = asyncio.Event()

        async def waits(connection: AnyConnection) -> object:
            cursor = await connection.execute("SELECT pg_sleep(60)")
            await lost.wait()
            return await cursor.fetchone()

        async def hears_it(connection: AnyConnection) -> object:
            try:
                return await (await connection.execute("SELECT 1")).fetchone()
            finally:
                lost.set()

        async def transaction(database: Database) -> None:
            async with database.transaction(pipelined=True) as connection:
                ending = _end_when_asleep(database, connection.info.backend_pid)
                await asyncio.gather(together(connection, waits(connection), hears_it(connection)), ending)

        async with Database(database_url) as database:
            with pytest.raises(DatabaseUnavailable):
                await transaction(database)

    asyncio.run(scenario())


async def _end_when_asleep(database: Database, server_process: int) -> None:
    """Ends a connection as soon as the server has begun with what it is to wait for."""
    ended = None
    while ended is None:
        async with database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND wait_event = 'PgSleep'",
                (server_process,),
            )
            ended = await cursor.fetchone()
