"""A workload is never dispatched to a region that does not hold its input tables any more (I3), whenever a copy is switched."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import psycopg
import pytest

from domain.identifiers import RegionId, TableId
from domain.placement import AttemptKey
from domain.plan import Plan
from domain.table import Table
from domain.workload import TableInput
from regional_scheduler.rounds import Lot
from services.clock import SystemClock
from services.database import award_store, catalog_store, fleet_store
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, PooledConnection
from services.database.engine import Database
from services.regional_scheduler.dispatching import Dispatched
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, FLEET, TABLES, award_to_east, specification, submission, submit
from tests.regional_scheduler_service.test_races import FIRST, NEWCOMER, W1, W2
from tests.regional_scheduler_service.won_in_the_east import dispatch_won

CLICKS = TableId("clicks")
COAST = RegionId("coast")

Story = Callable[[Database, RegionMemory], Awaitable[None]]


def test_a_table_that_has_gone_since_the_memory_was_read_gives_its_readers_back_and_no_others(
    database_url: str,
) -> None:
    async def story(database: Database, memory: RegionMemory) -> None:
        async with database.transaction() as connection:
            await move_clicks_away(connection)
        dispatched = await dispatch(database, memory)
        assert keys(dispatched) == [NEWCOMER], "what reads no table is dispatched"
        assert dispatched.given_back == 1
        async with database.transaction() as connection:
            assert not await award_store.has_awards(connection, EAST)
            cursor = await connection.execute("SELECT workload, state FROM workloads ORDER BY workload")
            assert await cursor.fetchall() == [(W1, "PENDING"), (W2, "DISPATCHED")]

    with_awards(database_url, story)


def test_a_dropped_table_gives_its_readers_back(database_url: str) -> None:
    async def story(database: Database, memory: RegionMemory) -> None:
        async with database.transaction() as connection:
            await catalog_store.apply_tables(connection, TABLES[1:])
        assert keys(await dispatch(database, memory)) == [NEWCOMER]

    with_awards(database_url, story)


def test_a_table_stays_where_it_is_while_plans_for_its_readers_are_made(database_url: str) -> None:
    refused: list[bool] = []

    def a_copy_is_switched(plan: Plan, _lot: Lot) -> Plan:
        with psycopg.connect(database_url) as connection:
            connection.execute("SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                connection.execute("UPDATE data_tables SET home = 'coast', revision = 9 WHERE data_table = 'clicks'")
        refused.append(True)
        return plan

    async def story(database: Database, memory: RegionMemory) -> None:
        assert keys(await dispatch(database, memory, a_copy_is_switched)) == [FIRST, NEWCOMER]
        assert refused
        async with database.transaction() as connection:
            await connection.execute("UPDATE data_tables SET home = 'coast' WHERE data_table = 'clicks'")

    with_awards(database_url, story)


def test_whoever_dispatches_waits_for_no_switch_under_way(database_url: str) -> None:
    async def story(database: Database, memory: RegionMemory) -> None:
        async with database.transaction() as switching:
            await move_clicks_away(switching)
            assert keys(await dispatch(database, memory)) == [NEWCOMER]

    with_awards(database_url, story)


def test_a_table_that_has_not_changed_does_not_keep_its_readers_back(database_url: str) -> None:
    async def story(database: Database, memory: RegionMemory) -> None:
        async with database.transaction() as connection:
            await catalog_store.apply_tables(connection, [TABLES[0], replace(TABLES[1], size_bytes=6)])
        dispatched = await dispatch(database, memory)
        assert (keys(dispatched), dispatched.given_back) == ([FIRST, NEWCOMER], 0)

    with_awards(database_url, story)


def with_awards(database_url: str, story: Story) -> None:
    """The region has won two workloads: the first reads `clicks`, the second no table."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await fleet_store.apply_fleet(connection, FLEET)
                await catalog_store.apply_tables(connection, TABLES)
                await _won(connection)
            async with database.transaction() as connection:
                memory = await load_memory(connection, EAST)
            assert memory is not None
            await story(database, memory)

    asyncio.run(scenario())


async def move_clicks_away(connection: AnyConnection) -> None:
    """From now on it is in another region alone."""
    await catalog_store.apply_tables(connection, [Table(CLICKS, 10**12, COAST), TABLES[1]])


async def dispatch(
    database: Database, memory: RegionMemory, start: Callable[[Plan, Lot], Plan] | None = None
) -> Dispatched:
    async with database.transaction(pipelined=True) as connection:
        dispatched = await dispatch_won(connection, memory, SystemClock(), start=start)
        # Else passes and rounds would follow each other for as long as an import holds a table; the end of that wakes the pass.
        assert isinstance(connection, PooledConnection)
        assert SCAN_CHANNEL not in connection.channels_to_wake
        return dispatched


def keys(dispatched: Dispatched) -> list[AttemptKey]:
    return [attempt.key for attempt in dispatched.attempts]


async def _won(connection: AnyConnection) -> None:
    reader = replace(specification(), tables=(TableInput(CLICKS),))
    for number, wanted in ((1, reader), (2, specification())):
        serialized = specification_to_proto(wanted).SerializeToString()
        await submit(connection, [replace(submission(number, wanted), serialized=serialized)])
    await connection.execute("UPDATE queue_entries SET priority = 1, level = 0, credit = 1, within_quota = false")
    await award_to_east(connection, W1, W2)
