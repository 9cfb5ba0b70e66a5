import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest

from services.database import event_store, workload_reader, workload_store
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable, RepeatTransaction
from services.database.server_processes import read_postmaster_id
from tests.conftest_postgres import SessionServer
from tests.database.counted_writes import fetch, insert, inserted, wait_until_alone
from tests.database.proxies import failing_proxy
from tests.database.small_world import submission, submit, until_somebody_waits


def _kill_postmaster(server: SessionServer) -> None:
    process = read_postmaster_id(server.layout.data)
    assert process is not None
    os.kill(process, signal.SIGKILL)


async def _write_and_fail(database: Database, channel: str = "topmast_test") -> None:
    async with database.transaction() as connection:
        await insert(connection)
        wake_after_commit(connection, channel)
        raise ZeroDivisionError


# ---------------------------------------------------------------- a transaction happens once


def test_transaction_commits_at_the_end_and_rolls_back_on_errors(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await insert(connection)
            with pytest.raises(ZeroDivisionError):
                await _write_and_fail(database)
            with pytest.raises(psycopg.errors.UndefinedTable):
                await database.run(lambda connection: fetch(connection, "SELECT * FROM nothing"))
            assert await database.run(inserted) == 1

    asyncio.run(scenario())


def test_database_without_tables_is_reported_at_once(empty_database_url: str) -> None:
    async def scenario() -> None:
        async with Database(empty_database_url) as database:
            with pytest.raises(psycopg.errors.UndefinedTable):
                await database.run(insert)

    asyncio.run(scenario())


def test_transaction_shows_when_it_does_not_know(database_url: str) -> None:
    async def scenario() -> None:
        async with failing_proxy(database_url) as proxy, Database(proxy.url) as database:
            proxy.break_next_commit(delivers=True)
            with pytest.raises(DatabaseUnavailable) as unavailable:
                async with database.transaction() as connection:
                    await insert(connection)
            assert unavailable.value.in_doubt
            assert await database.run(inserted) == 1

    asyncio.run(scenario())


@pytest.mark.live
def test_never_loses_or_doubles_a_submission_when_postgres_is_killed(
    postgres_server: SessionServer, database_url: str
) -> None:
    """Submissions without idempotency keys: nothing but `run` keeps them from happening twice."""
    acknowledged: list[str] = []
    stop = asyncio.Event()

    async def submit_on(database: Database, worker: int) -> None:
        number = 0
        while not stop.is_set():
            batch = [submission(worker * 100_000 + number + place) for place in range(3)]
            results = await database.run(partial(workload_store.insert_submissions, submissions=batch))
            acknowledged.extend(result.workload for result in results)
            number += 3

    async def kill_some_times(database: Database, times: int) -> None:
        for _ in range(times):
            enough = len(acknowledged) + 150
            while len(acknowledged) < enough:
                await database.run(inserted)
            _kill_postmaster(postgres_server)
        enough = len(acknowledged) + 150
        while len(acknowledged) < enough:
            await database.run(inserted)
        stop.set()

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, []))
            await asyncio.gather(*(submit_on(database, worker) for worker in range(6)), kill_some_times(database, 3))
            async with database.transaction() as connection:
                stored = [row[0] for row in await fetch(connection, "SELECT workload FROM workloads")]
                queued = await fetch(connection, "SELECT workload FROM queue_entries")
                page = await event_store.read(connection, 0, 1_000_000)
                counts = await workload_reader.count_by_state(connection)
            assert len(acknowledged) > 450
            assert sorted(stored) == sorted(acknowledged)
            assert sorted(row[0] for row in queued) == sorted(acknowledged)
            assert sorted(str(event.event.workload) for event in page.events) == sorted(acknowledged)
            assert sum(counts.values()) == len(acknowledged)

    asyncio.run(scenario())


# ---------------------------------------------------------------- repetition


def test_conflicts_are_repeated(database_url: str) -> None:
    """Two transactions take the same two rows in opposite order: a deadlock, of which one is the victim."""
    calls = 0

    async def scenario() -> None:
        async with Database(database_url) as database:
            for slot in ("a", "b"):
                async with database.transaction() as connection:
                    await insert(connection, slot)
            both_have_one = asyncio.Barrier(2)
            met = False

            async def take(connection: AnyConnection, first: str, second: str) -> None:
                nonlocal calls, met
                calls += 1
                await connection.execute("SET LOCAL deadlock_timeout = '50 ms'")
                await insert(connection, first)
                if not met:
                    await both_have_one.wait()
                    met = True
                await insert(connection, second)

            await asyncio.gather(
                database.run(lambda connection: take(connection, "a", "b")),
                database.run(lambda connection: take(connection, "b", "a")),
            )
            assert await database.run(inserted) == 6

    asyncio.run(scenario())
    assert calls == 3


def test_operation_may_ask_for_its_repetition(database_url: str) -> None:
    answers = iter([RepeatTransaction("too late"), RepeatTransaction("again"), None])

    async def operation(connection: AnyConnection) -> int:
        amount = await insert(connection)
        if (answer := next(answers)) is not None:
            raise answer
        return amount

    async def scenario() -> None:
        async with Database(database_url) as database:
            assert await database.run(operation) == 1
            assert await database.run(inserted) == 1

    asyncio.run(scenario())


def test_gives_up_after_the_given_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database(f"postgresql://postgres@/x?host={tmp_path}", give_up_after_s=0.05) as database:
            with pytest.raises(DatabaseUnavailable, match=r"in 0\.05 s") as unavailable:
                await database.run(inserted)
            assert not unavailable.value.in_doubt
            with pytest.raises(DatabaseUnavailable):
                async with database.transaction():
                    pytest.fail("there is no database")
            assert not database.healthy

    asyncio.run(scenario())


def test_snapshot_sees_one_state_and_cannot_write(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:

            async def look_twice(connection: AnyConnection) -> tuple[int, int]:
                before = await inserted(connection)
                await database.run(insert)
                return before, await inserted(connection)

            assert await database.run(look_twice, snapshot=True) == (0, 0)
            assert await database.run(look_twice) == (1, 2)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await database.run(insert, snapshot=True)

    asyncio.run(scenario())


# ---------------------------------------------------------------- connections


def test_connections_that_broke_while_idle_are_not_used(database_url: str) -> None:
    calls = 0

    async def operation(connection: AnyConnection) -> int:
        nonlocal calls
        calls += 1
        return await insert(connection)

    async def scenario() -> None:
        async with Database(database_url, connections=3) as database:
            await asyncio.gather(*(database.run(insert) for _ in range(6)))
            with psycopg.connect(database_url) as other:
                other.execute(
                    """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                        WHERE datname = current_database() AND pid <> pg_backend_pid()"""
                )
                wait_until_alone(other)
            await database.run(operation)

    asyncio.run(scenario())
    assert calls == 1


def test_cancelled_operation_leaves_nothing_behind(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url, connections=1) as database, Database(database_url) as other:
            async with other.transaction() as blocking:
                await blocking.execute("LOCK TABLE quota_use")
                running = asyncio.create_task(database.run(insert))
                await until_somebody_waits(other)
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            assert await database.run(inserted) == 0
            assert await database.run(insert) == 1

    asyncio.run(scenario())


# ---------------------------------------------------------------- health and wake-ups


@pytest.mark.live
def test_health_is_reported_and_listeners_are_woken_after_an_interruption(
    postgres_server: SessionServer, database_url: str
) -> None:
    noted: list[bool] = []

    async def scenario() -> None:
        async with Database(database_url) as database, database.listen("topmast_test") as subscription:
            database.tell_health(noted.append)
            assert await subscription.wait(30.0)
            assert database.healthy
            _kill_postmaster(postgres_server)
            assert await subscription.wait(30.0)
            assert database.healthy

    asyncio.run(scenario())
    assert noted == [False, True, False, True]


def test_listeners_are_woken_after_the_commit_only(database_url: str) -> None:
    async def scenario() -> None:
        async with (
            Database(database_url) as database,
            Database(database_url) as elsewhere,
            elsewhere.listen("topmast_test") as subscription,
            elsewhere.listen("topmast_other") as other,
        ):
            await subscription.wait()
            await other.wait()
            with pytest.raises(ZeroDivisionError):
                await _write_and_fail(database, "topmast_other")
            await database.run(_wake("topmast_test"))
            assert await subscription.wait(30.0)
            # The other one would have been woken before.
            assert not await other.wait(0.0)

    asyncio.run(scenario())


def _wake(channel: str) -> Callable[[AnyConnection], Awaitable[None]]:
    async def operation(connection: AnyConnection) -> None:
        await insert(connection)
        wake_after_commit(connection, channel)

    return operation


def test_new_listeners_do_not_wake_the_old_ones(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.listen("topmast_one") as one:
            assert await one.wait(30.0)
            async with database.listen("topmast_two") as two, database.listen("topmast_one") as another:
                assert await two.wait(30.0)
                assert await another.wait(30.0)
                assert not await one.wait(0.0)
                await database.run(_wake("topmast_one"))
                assert await one.wait(30.0)
                assert await another.wait(30.0)

    asyncio.run(scenario())


def test_waking_needs_a_connection_that_can(database_url: str) -> None:
    async def scenario() -> None:
        connection = await psycopg.AsyncConnection.connect(database_url)
        try:
            with pytest.raises(TypeError, match="no listener would be woken"):
                wake_after_commit(connection, "topmast_test")
        finally:
            await connection.close()

    asyncio.run(scenario())


def test_many_more_operations_than_connections(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url, connections=2) as database:
            await asyncio.gather(*(database.run(partial(insert, slot=str(number))) for number in range(50)))
            assert await database.run(inserted) == 50
            rows = await database.run(lambda connection: fetch(connection, "SELECT count(*) FROM commit_marks"))
            assert rows[0][0] <= 50

    asyncio.run(scenario())
