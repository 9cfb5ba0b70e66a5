"""Rows of commit_marks that are lost, or that nobody needs any more."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import psycopg
import pytest

from services.database import commit_marks
from services.database.connection import AnyConnection
from services.database.engine import Database
from tests.database.counted_writes import insert, inserted
from tests.database.proxies import failing_proxy


def test_a_transaction_whose_slot_has_lost_its_row_is_not_done_twice(database_url: str) -> None:
    """As after a failover to a replica that did not have the row yet."""

    async def scenario() -> None:
        async with failing_proxy(database_url) as proxy, Database(proxy.url) as database:
            await database.run(insert)
            with psycopg.connect(database_url) as outside:
                assert outside.execute("DELETE FROM commit_marks").rowcount == 1
            proxy.break_next_commit(delivers=True)
            assert await database.run(insert) == 2
            assert await database.run(inserted) == 2

    asyncio.run(scenario())


def test_rows_of_slots_that_were_given_up_are_deleted_while_the_process_lives(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is cancelled leaves a slot, and with it a row."""
    now_s = time.monotonic()
    monkeypatch.setattr(commit_marks, "time", SimpleNamespace(monotonic=lambda: now_s))

    async def scenario() -> None:
        nonlocal now_s
        async with Database(database_url) as database:
            for _day in range(30):
                await _cancelled(database)
                with psycopg.connect(database_url) as outside:
                    outside.execute("UPDATE commit_marks SET made_at = made_at - interval '1 day'")
                now_s += 86_400.0
            await database.run(insert)

    asyncio.run(scenario())
    assert 0 < _rows(database_url) <= 9


async def _cancelled(database: Database) -> None:
    reached = asyncio.Event()

    async def stays(_connection: AnyConnection) -> None:
        reached.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(database.run(stays))
    await reached.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_a_process_that_begins_with_two_transactions_at_once_deletes_old_rows(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(insert)
        with psycopg.connect(database_url) as outside:
            outside.execute("UPDATE commit_marks SET slot = 'old', made_at = now() - interval '8 days'")
        async with Database(database_url) as database:
            await asyncio.gather(database.run(insert), database.run(insert))

    asyncio.run(scenario())
    with psycopg.connect(database_url) as outside:
        assert outside.execute("SELECT FROM commit_marks WHERE slot = 'old'").fetchone() is None
    assert _rows(database_url) == 2


def _rows(database_url: str) -> int:
    with psycopg.connect(database_url) as outside:
        row = outside.execute("SELECT count(*) FROM commit_marks").fetchone()
    assert row is not None
    return int(row[0])
