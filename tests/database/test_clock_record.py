"""The clock of a service is set once, before anything has happened."""

from __future__ import annotations

import asyncio

import pytest

from services.clock import CompressedClock, SystemClock
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.runtime.clock_record import ClockKept, load_clock, settle_clock
from tests.database.small_world import submission, submit


async def _speed(connection: AnyConnection) -> float:
    clock = await load_clock(connection)
    return clock.speed if isinstance(clock, CompressedClock) else 1.0


def test_never_changes_its_speed_once_something_has_happened(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await submit(connection, [submission(1)])
            with pytest.raises(ClockKept, match="runs at speed 1 since its first start, and cannot be changed to 60"):
                await settle_clock(connection, 60.0, None)
            assert isinstance(await load_clock(connection), SystemClock)
            await settle_clock(connection, 1.0, None)

    asyncio.run(scenario())


def test_a_speed_that_was_set_is_kept_and_may_be_said_again(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await settle_clock(connection, 60.0, None)
            await submit(connection, [submission(1)])
            await settle_clock(connection, 60.0, None)
            assert await _speed(connection) == 60.0
            with pytest.raises(ClockKept, match="runs at speed 60"):
                await settle_clock(connection, 1.0, None)

    asyncio.run(scenario())
