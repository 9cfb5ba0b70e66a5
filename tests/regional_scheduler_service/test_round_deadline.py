"""A region that says nothing delays a round until its deadline and no longer, however often something else wakes the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

from domain.identifiers import RegionId, TableId
from domain.life_cycle import State
from domain.table import Table
from domain.workload import TableInput
from services.clock import SystemClock
from services.configuration import AuctionConfiguration, Configuration
from services.database import catalog_store, fleet_store, lease_store
from services.database.channels import REGION_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from services.regional_scheduler.tier import RegionalSchedulerTier
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, FLEET, specification, submission, submit

COAST = RegionId("coast")
PATIENCE_REAL_S = 240.0
"""A guard against hangs, not a measure of speed."""
WAKE_EVERY_REAL_S = 0.02
CONFIGURATION = Configuration(auction=AuctionConfiguration(answer_timeout_real_s=0.5, poll_real_s=0.2))
CLICKS = Table(TableId("clicks"), 1, COAST)


async def put_up(connection: AnyConnection, tables: tuple[TableInput, ...] = ()) -> None:
    """One ranked workload; the coast holds its lease and never answers."""
    await fleet_store.apply_fleet(connection, FLEET)
    await catalog_store.apply_tables(connection, [CLICKS])
    wanted = replace(specification(), tables=tables)
    serialized = specification_to_proto(wanted).SerializeToString()
    await submit(connection, [replace(submission(1), specification=wanted, serialized=serialized)])
    await connection.execute("UPDATE queue_entries SET priority = 1, level = 0, credit = 0")
    await connection.execute("INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (1, 1, 0, 0)")
    silent = await lease_store.acquire(connection, f"{lease_store.REGIONAL_PREFIX}{COAST}", "it", "nowhere:1", 1, 600.0)
    assert silent is not None


@asynccontextmanager
async def east_at_work(database: Database) -> AsyncIterator[None]:
    """The scheduler of the east, woken all the time."""

    async def wake() -> None:
        while True:
            async with database.transaction() as connection:
                wake_after_commit(connection, REGION_CHANNEL)
            await asyncio.sleep(WAKE_EVERY_REAL_S)

    tier = RegionalSchedulerTier(EAST, database, SystemClock(), CONFIGURATION)
    port = await tier.start("127.0.0.1:0")
    tasks = [asyncio.ensure_future(wake()), asyncio.ensure_future(tier.run(f"127.0.0.1:{port}", "east"))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await tier.stop(0.0)


async def until(database: Database, statement: str) -> None:
    async with asyncio.timeout(PATIENCE_REAL_S):
        while True:
            async with database.transaction() as connection:
                cursor = await connection.execute(statement)
                row = await cursor.fetchone()
                if row is not None and row[0]:
                    return
            await asyncio.sleep(WAKE_EVERY_REAL_S)


def test_a_round_closes_at_its_deadline_though_other_things_wake_the_region_all_the_time(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await put_up(connection)
            async with east_at_work(database):
                await until(database, "SELECT count(*) FROM attempts")

    asyncio.run(scenario())


def test_a_workload_awaits_no_data_while_the_region_that_holds_it_says_nothing(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await put_up(connection, (TableInput(CLICKS.table),))
            async with east_at_work(database):
                await until(database, "SELECT count(*) > 0 FROM auction_rounds WHERE closed_at IS NOT NULL")
                async with database.transaction() as connection:
                    cursor = await connection.execute("SELECT state, reason, diagnosis FROM queue_entries")
                    row = await cursor.fetchone()
                assert row is not None
                state, reason, diagnosis = row
                assert state == State.WAITING.value
                assert reason.startswith("coast may hold the tables of w000001 and did not answer: ")
                assert (diagnosis["reason"], diagnosis["region"]) == ("no_answer", COAST)

    asyncio.run(scenario())
