"""With synchronous replication nothing is acknowledged that the primary alone has (docs/operations.md, "Two servers")."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from services.database import migrations_runner
from services.database.embedded import EmbeddedLayout, start_embedded, stop_embedded
from services.database.engine import Database
from tests.database.counted_writes import insert, inserted


@pytest.fixture
def own_server_url() -> Iterator[str]:
    """A server that may be set up otherwise than that of the other tests."""
    with tempfile.TemporaryDirectory(prefix="topmast-replicated-") as folder:
        home = Path(folder)
        try:
            start_embedded(home, settings=["fsync=off", "full_page_writes=off", "autovacuum=off"], stop_with_us=True)
            layout = EmbeddedLayout.of(home)
            with psycopg.connect(layout.url("postgres"), autocommit=True) as connection:
                connection.execute("CREATE DATABASE replicated")
            migrations_runner.upgrade(layout.url("replicated"))
            yield layout.url("replicated")
        finally:
            stop_embedded(home)


def test_what_no_replica_has_is_not_acknowledged(own_server_url: str) -> None:
    """1. The replica is away, so a commit waits for it. 2. The server ends the connection: it has committed, for itself alone.

    3. It is asked on another connection whether it has committed, and that waits for the replica as well. 4. The replica is not waited
    for any more: it is done, and was not done twice.
    """

    async def scenario() -> None:
        async with Database(own_server_url) as database:
            await database.run(insert)
            with psycopg.connect(own_server_url, autocommit=True) as outside:
                outside.execute("SET synchronous_commit = local")
                outside.execute("ALTER SYSTEM SET synchronous_standby_names = 'replica'")
                outside.execute("SELECT pg_reload_conf()")
                running, server_process = await _until_a_commit_waits(database, outside)
                outside.execute("SELECT pg_terminate_backend(%s)", [server_process])
                while _waiting(outside) in {None, server_process}:
                    assert not running.done(), "acknowledged, and on no replica"
                    await asyncio.sleep(0)
                outside.execute("ALTER SYSTEM RESET synchronous_standby_names")
                outside.execute("SELECT pg_reload_conf()")
                assert await running == await database.run(inserted)

    asyncio.run(scenario())


async def _until_a_commit_waits(
    database: Database, outside: psycopg.Connection[tuple[object, ...]]
) -> tuple[asyncio.Task[int], object]:
    """A commit that waits for the replica, and the server process in which it does. The server takes a setting over a little later:
    what is committed before that waits for nobody."""
    while True:
        running = asyncio.create_task(database.run(insert))
        while not running.done():
            if (server_process := _waiting(outside)) is not None:
                return running, server_process
            await asyncio.sleep(0)
        running.result()


def _waiting(outside: psycopg.Connection[tuple[object, ...]]) -> object:
    """The server process that waits for the replica."""
    row = outside.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchone()
    return None if row is None else row[0]
