"""A transaction that is cancelled, whichever turn it is, ends so, and leaves the connections as they were."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import psycopg
import pytest

from services.database.connection import PooledConnection, connect
from services.database.engine import Database
from tests.database.counted_writes import insert, inserted

_CONNECTIONS = 2

_CANCELLED = 12
"""So many are cancelled at least. How many turns one takes depends on how soon the server answers."""


@pytest.mark.parametrize("how", ["run", "snapshot", "transaction", "pipelined"])
def test_who_is_cancelled_in_a_transaction_leaves_everything_as_it_was(database_url: str, how: str) -> None:
    async def work(database: Database) -> None:
        if how == "run":
            await database.run(insert)
        elif how == "snapshot":
            await database.run(inserted, snapshot=True)
        else:
            async with database.transaction(pipelined=how == "pipelined") as connection:
                await insert(connection)

    async def scenario() -> None:
        async with Database(database_url, connections=_CONNECTIONS) as database:
            await work(database)
            turns = cancelled = 0
            while cancelled < _CANCELLED or turns:
                if not await _cancelled_after(work(database), turns):
                    turns = 0
                    continue
                cancelled += 1
                turns += 1
                pool = database._pool
                assert pool._places._value == _CONNECTIONS
                idle = [one for one in pool._idle if not one.closed]
                assert all(one.info.transaction_status == psycopg.pq.TransactionStatus.IDLE for one in idle)
                assert all(one.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF for one in idle)
            before = await database.run(inserted)
            await work(database)
            assert await database.run(inserted) == before + (how != "snapshot")

    asyncio.run(scenario())


def test_a_connection_that_is_given_up_while_it_is_made_is_closed_at_once(database_url: str) -> None:
    """Also when somebody keeps the task in which it was made."""

    async def scenario() -> None:
        given_up: list[asyncio.Task[PooledConnection]] = []
        before, turns = _open_sockets(), 0
        while len(given_up) < _CANCELLED or turns:
            making = asyncio.create_task(connect(database_url))
            for _ in range(turns):
                await asyncio.sleep(0)
            if making.done():
                await making.result().close()
                turns = 0
                continue
            making.cancel()
            await asyncio.wait({making})
            given_up.append(making)
            turns += 1
        assert _open_sockets() == before

    asyncio.run(scenario())


def _open_sockets() -> int:
    return sum(
        os.path.realpath(descriptor).rpartition("/")[2].startswith("socket:")
        for descriptor in Path("/proc/self/fd").iterdir()
    )


async def _cancelled_after(work: Coroutine[Any, Any, None], turns: int) -> bool:
    """Whether it was not over by then."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.done():
        task.result()
        return False
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return True
