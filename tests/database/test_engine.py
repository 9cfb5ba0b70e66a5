import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from services.database import event_store, workload_reader, workload_store
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable, RepeatTransaction
from services.database.server_processes import read_postmaster_id
from tests.conftest_postgres import SessionServer
from tests.database.proxies import failing_proxy
from tests.database.small_world import submission, submit, until_somebody_waits


async def _fetch(connection: AnyConnection, query: str) -> list[TupleRow]:
    cursor = await connection.execute(query)
    return await cursor.fetchall()


async def _insert(connection: AnyConnection, slot: str = "x") -> int:
    """Writes a row that tells how often this happened."""
    cursor = await connection.execute(
        """INSERT INTO quota_use (tenant, bucket, amount) VALUES ('counter', %s, 1)
           ON CONFLICT (tenant, bucket) DO UPDATE SET amount = quota_use.amount + 1 RETURNING amount""",
        (slot,),
    )
    row = await cursor.fetchone()
    return -1 if row is None else int(row[0])


async def _inserted(connection: AnyConnection) -> int:
    rows = await _fetch(connection, "SELECT coalesce(sum(amount), 0)::int FROM quota_use WHERE tenant = 'counter'")
    return int(rows[0][0])


def _kill_postmaster(server: SessionServer) -> None:
    process = read_postmaster_id(server.layout.data)
    assert process is not None
    os.kill(process, signal.SIGKILL)


async def _write_and_fail(database: Database, channel: str = "topmast_test") -> None:
    async with database.transaction() as connection:
        await _insert(connection)
        wake_after_commit(connection, channel)
        raise ZeroDivisionError


# ---------------------------------------------------------------- a transaction happens once


def test_transaction_commits_at_the_end_and_rolls_back_on_errors(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await _insert(connection)
            with pytest.raises(ZeroDivisionError):
                await _write_and_fail(database)
            with pytest.raises(psycopg.errors.UndefinedTable):
                await database.run(lambda connection: _fetch(connection, "SELECT * FROM nothing"))
            assert await database.run(_inserted) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize("delivers", [False, True], ids=["commit is lost", "answer is lost"])
def test_connection_lost_during_commit_is_resolved(database_url: str, delivers: bool) -> None:
    calls = 0

    async def operation(connection: AnyConnection) -> int:
        nonlocal calls
        calls += 1
        return await _insert(connection)

    async def scenario() -> None:
        async with failing_proxy(database_url) as proxy, Database(proxy.url) as database:
            await database.run(_inserted)  # connected, and with a slot of its own
            assert await database.run(operation) == 1
            proxy.break_next_commit(delivers=delivers)
            assert await database.run(operation) == 2
            assert proxy.broken.is_set()
            assert await database.run(_inserted) == 2

    asyncio.run(scenario())
    assert calls == (2 if delivers else 3)


def test_commit_that_is_still_going_on_is_waited_for(database_url: str) -> None:
    """1. COMMIT is on its way and takes long. 2. The connection is lost. 3. run waits for the end, and does not repeat."""
    calls = 0

    async def operation(connection: AnyConnection) -> int:
        nonlocal calls
        calls += 1
        return await _insert(connection)

    async def scenario() -> None:
        async with (
            failing_proxy(database_url) as proxy,
            Database(proxy.url) as database,
            Database(database_url) as other,
        ):
            await database.run(_insert)
            await other.run(_make_commits_wait)
            async with other.transaction() as blocking:
                await blocking.execute("SELECT pg_advisory_xact_lock(42)")
                proxy.break_next_commit(delivers=True)
                running = asyncio.create_task(database.run(operation))
                await proxy.broken.wait()
                await until_somebody_waits(other)
            assert await running == 2
            assert await other.run(_inserted) == 2

    asyncio.run(scenario())
    assert calls == 1


async def _make_commits_wait(connection: AnyConnection) -> None:
    """From now on a transaction that has changed a counter waits, in its commit, for the advisory lock 42."""
    await connection.execute(
        """CREATE FUNCTION wait_for_42() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END $$"""
    )
    await connection.execute(
        """CREATE CONSTRAINT TRIGGER wait_at_commit AFTER UPDATE ON quota_use DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW EXECUTE FUNCTION wait_for_42()"""
    )


def test_commit_that_the_server_refuses_has_not_happened(database_url: str) -> None:
    """A deferred constraint is broken: that is known, raised as it is, and not tried again."""
    calls = 0

    async def operation(connection: AnyConnection) -> None:
        nonlocal calls
        calls += 1
        await _insert(connection)
        await connection.execute("INSERT INTO late VALUES (1)")

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await connection.execute("CREATE TABLE late (x int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            await database.run(operation)
            with pytest.raises(psycopg.errors.UniqueViolation):
                await database.run(operation)
            assert await database.run(_inserted) == 1

    asyncio.run(scenario())
    assert calls == 2


def test_database_without_tables_is_reported_at_once(empty_database_url: str) -> None:
    async def scenario() -> None:
        async with Database(empty_database_url) as database:
            with pytest.raises(psycopg.errors.UndefinedTable):
                await database.run(_insert)

    asyncio.run(scenario())


def test_transaction_shows_when_it_does_not_know(database_url: str) -> None:
    async def scenario() -> None:
        async with failing_proxy(database_url) as proxy, Database(proxy.url) as database:
            proxy.break_next_commit(delivers=True)
            with pytest.raises(DatabaseUnavailable) as unavailable:
                async with database.transaction() as connection:
                    await _insert(connection)
            assert unavailable.value.in_doubt
            assert await database.run(_inserted) == 1

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
                await database.run(_inserted)
            _kill_postmaster(postgres_server)
        enough = len(acknowledged) + 150
        while len(acknowledged) < enough:
            await database.run(_inserted)
        stop.set()

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: submit(connection, []))
            await asyncio.gather(*(submit_on(database, worker) for worker in range(6)), kill_some_times(database, 3))
            async with database.transaction() as connection:
                stored = [row[0] for row in await _fetch(connection, "SELECT workload FROM workloads")]
                queued = await _fetch(connection, "SELECT workload FROM queue_entries")
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
                    await _insert(connection, slot)
            both_have_one = asyncio.Barrier(2)
            met = False

            async def take(connection: AnyConnection, first: str, second: str) -> None:
                nonlocal calls, met
                calls += 1
                await connection.execute("SET LOCAL deadlock_timeout = '50 ms'")
                await _insert(connection, first)
                if not met:
                    await both_have_one.wait()
                    met = True
                await _insert(connection, second)

            await asyncio.gather(
                database.run(lambda connection: take(connection, "a", "b")),
                database.run(lambda connection: take(connection, "b", "a")),
            )
            assert await database.run(_inserted) == 6

    asyncio.run(scenario())
    assert calls == 3


def test_operation_may_ask_for_its_repetition(database_url: str) -> None:
    answers = iter([RepeatTransaction("too late"), RepeatTransaction("again"), None])

    async def operation(connection: AnyConnection) -> int:
        amount = await _insert(connection)
        if (answer := next(answers)) is not None:
            raise answer
        return amount

    async def scenario() -> None:
        async with Database(database_url) as database:
            assert await database.run(operation) == 1
            assert await database.run(_inserted) == 1

    asyncio.run(scenario())


def test_gives_up_after_the_given_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Database(f"postgresql://postgres@/x?host={tmp_path}", give_up_after_s=0.05) as database:
            with pytest.raises(DatabaseUnavailable, match=r"in 0\.05 s") as unavailable:
                await database.run(_inserted)
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
                before = await _inserted(connection)
                await database.run(_insert)
                return before, await _inserted(connection)

            assert await database.run(look_twice, snapshot=True) == (0, 0)
            assert await database.run(look_twice) == (1, 2)
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                await database.run(_insert, snapshot=True)

    asyncio.run(scenario())


# ---------------------------------------------------------------- connections


def test_connections_that_broke_while_idle_are_not_used(database_url: str) -> None:
    calls = 0

    async def operation(connection: AnyConnection) -> int:
        nonlocal calls
        calls += 1
        return await _insert(connection)

    async def scenario() -> None:
        async with Database(database_url, connections=3) as database:
            await asyncio.gather(*(database.run(_insert) for _ in range(6)))
            with psycopg.connect(database_url) as other:
                other.execute(
                    """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                        WHERE datname = current_database() AND pid <> pg_backend_pid()"""
                )
                _wait_until_alone(other)
            await database.run(operation)

    asyncio.run(scenario())
    assert calls == 1


def _wait_until_alone(connection: psycopg.Connection[TupleRow]) -> None:
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    while connection.execute(others).fetchone() != (0,):
        connection.commit()


def test_cancelled_operation_leaves_nothing_behind(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url, connections=1) as database, Database(database_url) as other:
            async with other.transaction() as blocking:
                await blocking.execute("LOCK TABLE quota_use")
                running = asyncio.create_task(database.run(_insert))
                await until_somebody_waits(other)
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            assert await database.run(_inserted) == 0
            assert await database.run(_insert) == 1

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
        await _insert(connection)
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
            await asyncio.gather(*(database.run(partial(_insert, slot=str(number))) for number in range(50)))
            assert await database.run(_inserted) == 50
            rows = await database.run(lambda connection: _fetch(connection, "SELECT count(*) FROM commit_marks"))
            assert rows[0][0] <= 50

    asyncio.run(scenario())
