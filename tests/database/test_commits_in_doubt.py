"""Each transaction happens once, whatever becomes of the connection while it is committed."""

import asyncio
import os
import signal
import socket
import time
from types import SimpleNamespace

import psycopg
import pytest

from services.database import commit_marks
from services.database.connection import AnyConnection
from services.database.engine import Database
from tests.database.counted_writes import insert, inserted, wait_until_alone
from tests.database.proxies import failing_proxy
from tests.database.small_world import until_somebody_waits


@pytest.mark.parametrize("delivers", [False, True], ids=["commit is lost", "answer is lost"])
def test_connection_lost_during_commit_is_resolved(database_url: str, delivers: bool) -> None:
    calls = 0

    async def operation(connection: AnyConnection) -> int:
        nonlocal calls
        calls += 1
        return await insert(connection)

    async def scenario() -> None:
        async with failing_proxy(database_url) as proxy, Database(proxy.url) as database:
            await database.run(inserted)  # connected, and with a slot of its own
            assert await database.run(operation) == 1
            proxy.break_next_commit(delivers=delivers)
            assert await database.run(operation) == 2
            assert proxy.broken.is_set()
            assert await database.run(inserted) == 2

    asyncio.run(scenario())
    assert calls == (2 if delivers else 3)


def test_commit_that_is_still_going_on_is_waited_for(database_url: str) -> None:
    """1. COMMIT is on its way and takes long. 2. The connection is lost. 3. run waits for the end, and does not repeat."""
    calls = 0

    async def operation(connection: AnyConnection) -> int:
        nonlocal calls
        calls += 1
        return await insert(connection)

    async def scenario() -> None:
        async with (
            failing_proxy(database_url) as proxy,
            Database(proxy.url) as database,
            Database(database_url) as other,
        ):
            await database.run(insert)
            await other.run(_make_commits_wait)
            async with other.transaction() as blocking:
                await blocking.execute("SELECT pg_advisory_xact_lock(42)")
                proxy.break_next_commit(delivers=True)
                running = asyncio.create_task(database.run(operation))
                await proxy.broken.wait()
                await until_somebody_waits(other)
            assert await running == 2
            assert await other.run(inserted) == 2

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


def test_connection_lost_before_anything_of_the_commit_was_sent(database_url: str) -> None:
    """Nothing was marked then: the transaction that this one's slot was last used for must not be taken for it."""
    tries = 0

    async def broken_once(connection: AnyConnection) -> None:
        nonlocal tries
        tries += 1
        await insert(connection, "second")
        if tries == 1:
            await connection.close()

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: insert(connection, "first"))
            await database.run(broken_once)
            assert await database.run(inserted) == 2

    asyncio.run(scenario())
    assert tries == 2


def test_commit_that_the_server_comes_to_when_it_was_given_up_is_refused(database_url: str) -> None:
    """Its statements lie in the socket of a server process that stands still: nobody could see that they were on their way."""
    stalled: list[int] = []

    async def stalled_once(connection: AnyConnection) -> None:
        await insert(connection, f"try-{len(stalled)}")
        if not stalled:
            stalled.append(connection.info.backend_pid)
            os.kill(stalled[0], signal.SIGSTOP)
            asyncio.get_running_loop().call_later(0.3, _hang_up, connection.fileno())

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: insert(connection, "first"))
            try:
                await database.run(stalled_once)
            finally:
                os.kill(stalled[0], signal.SIGCONT)

    asyncio.run(scenario())
    with psycopg.connect(database_url) as outside:
        wait_until_alone(outside)
        row = outside.execute("SELECT sum(amount) FROM quota_use WHERE tenant = 'counter'").fetchone()
    assert row == (2,)


def _hang_up(descriptor: int) -> None:
    """The network takes the connection for lost; what was sent has arrived."""
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        connection.shutdown(socket.SHUT_RDWR)


def test_a_slot_that_nobody_used_for_long_keeps_its_row(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts deletes rows of long ago; without its row a commit in doubt would be done again."""

    async def scenario() -> None:
        async with failing_proxy(database_url) as proxy, Database(proxy.url) as database:
            await database.run(lambda connection: insert(connection, "first"))
            with psycopg.connect(database_url) as outside:
                outside.execute("UPDATE commit_marks SET made_at = now() - interval '8 days'")
            later_s = time.monotonic() + 13 * 3600.0
            monkeypatch.setattr(commit_marks, "time", SimpleNamespace(monotonic=lambda: later_s))
            # It writes nothing, so it marks nothing either.
            await database.run(inserted)
            async with Database(database_url) as newcomer:
                await newcomer.run(lambda connection: insert(connection, "of a newcomer"))
            proxy.break_next_commit(delivers=True)
            await database.run(lambda connection: insert(connection, "third"))
            assert await database.run(inserted) == 3

    asyncio.run(scenario())


def test_commit_that_the_server_refuses_has_not_happened(database_url: str) -> None:
    """A deferred constraint is broken: that is known, raised as it is, and not tried again."""
    calls = 0

    async def operation(connection: AnyConnection) -> None:
        nonlocal calls
        calls += 1
        await insert(connection)
        await connection.execute("INSERT INTO late VALUES (1)")

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await connection.execute("CREATE TABLE late (x int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
            await database.run(operation)
            with pytest.raises(psycopg.errors.UniqueViolation):
                await database.run(operation)
            assert await database.run(inserted) == 1

    asyncio.run(scenario())
    assert calls == 2
