"""A region whose scheduler dies and never returns keeps nobody waiting: what it has won, and what was to go on there."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from psycopg.types.json import Jsonb

from cluster_manager.attempt_run.events import Eviction, Started
from domain.events import EvictionCause
from domain.fleet import Fleet
from domain.identifiers import RegionId, TableId
from domain.rank import Standing
from domain.table import Table
from domain.workload import TableInput
from services.clock import SystemClock
from services.configuration import AuctionConfiguration
from services.database import attempt_store, auction_store, award_store, catalog_store, fleet_store, lease_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.placement_documents import placements_to_documents
from services.execution.executor import AttemptPhase, AttemptStatus
from services.regional_scheduler.auction_turn import begin_turn
from services.regional_scheduler.auctioneering import Auctioneer
from services.regional_scheduler.live_attempts import leave_event
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.recording import record_reports
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, FLEET, placement, specification, submission, submit
from tests.regional_scheduler_service.regions_of_one_process import RegionsOfOneProcess
from tests.regional_scheduler_service.test_races import FIRST, W1, dispatch_over_quota

COAST = RegionId("coast")
CLICKS = TableId("clicks")


async def serve(connection: AnyConnection, region: RegionId, absent_real_s: float = 0.0) -> lease_store.Lease:
    """The region's scheduler has its lease, or had it until so long ago."""
    lease = await lease_store.acquire(connection, f"{lease_store.REGIONAL_PREFIX}{region}", "it", "nowhere", 1, 600.0)
    assert lease is not None
    if absent_real_s:
        await connection.execute(
            "UPDATE leases SET expires_at = clock_timestamp() - make_interval(secs => %s) WHERE name = %s",
            (absent_real_s, lease.name),
        )
    return lease


async def award_to_coast(connection: AnyConnection) -> None:
    """A round was closed, and the coast has won; then the queue was ranked anew."""
    await fleet_store.apply_fleet(connection, FLEET)
    readable = replace(submission(1), serialized=specification_to_proto(specification()).SerializeToString())
    await submit(connection, [readable])
    await connection.execute("UPDATE queue_entries SET priority = 1, level = 0, credit = 0")
    await connection.execute("INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (1, 1, 0, 0)")
    await connection.execute("INSERT INTO awards (workload, region, round, lot) VALUES (%s, %s, 1, 0)", (W1, COAST))


@pytest.mark.parametrize(
    ("absent_real_s", "in_the_fleet", "put_up"),
    [
        (0.0, True, False),
        (lease_store.ABSENCE_REAL_S / 2, True, False),
        (lease_store.ABSENCE_REAL_S + 1.0, True, True),
        (0.0, False, True),
    ],
    ids=["is there", "starts again", "does not return", "left the fleet"],
)
def test_what_a_region_has_won_that_does_not_return_is_put_up_again(
    database_url: str, absent_real_s: float, in_the_fleet: bool, put_up: bool
) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await award_to_coast(connection)
                await serve(connection, COAST, absent_real_s)
                if not in_the_fleet:
                    await fleet_store.apply_fleet(connection, Fleet((FLEET.region(EAST),)))
                lease = await serve(connection, EAST)
                memory = await load_memory(connection, EAST)
            assert memory is not None
            auctioneer = Auctioneer(
                database, lease, memory, SystemClock(), AuctionConfiguration(), RegionsOfOneProcess().ask
            )
            turn = await begin_turn(database, memory, auctioneer, SystemClock())
            await auctioneer.go_on(turn.looked, turn.lots)
            async with database.transaction() as connection:
                stored = await auction_store.open_round(connection)
                assert [lot["workload"] for lot in (stored.lots if stored is not None else ())] == [W1] * put_up
                assert await award_store.has_awards(connection, COAST) is not put_up

    asyncio.run(scenario())


@pytest.mark.parametrize("returns", [True, False])
def test_who_migrates_to_a_region_that_does_not_return_goes_back_to_the_queue(database_url: str, returns: bool) -> None:
    migrates(database_url, goes_on=returns, returns=returns)


@pytest.mark.parametrize(
    ("table", "goes_on"),
    [
        (Table(CLICKS, 5, COAST), True),
        (Table(CLICKS, 5, EAST, (COAST,)), True),
        (Table(CLICKS, 5, EAST), False),
        (None, False),
    ],
    ids=["at home there", "a copy there", "moved away", "dropped"],
)
def test_who_migrates_to_a_region_that_does_not_hold_what_it_reads_any_more_goes_back_to_the_queue(
    database_url: str, table: Table | None, goes_on: bool
) -> None:
    migrates(database_url, goes_on=goes_on, reads=(TableInput(CLICKS),), tables=() if table is None else (table,))


def migrates(
    database_url: str,
    *,
    goes_on: bool,
    returns: bool = True,
    reads: tuple[TableInput, ...] = (),
    tables: tuple[Table, ...] = (),
) -> None:
    """An attempt of `reads` stops to go on at the coast, whose scheduler `returns`, where these are all tables."""
    kept = (placement("coast-a-r0-m0"),)
    migration = Eviction(EvictionCause.MIGRATED, to=(kept[0].machine,))

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await dispatch_over_quota(connection, replace(specification(), tables=reads))
                await catalog_store.apply_tables(connection, tables)
                await serve(connection, COAST, 0.0 if returns else lease_store.ABSENCE_REAL_S + 1.0)
                memory = await load_memory(connection, EAST)
                assert memory is not None
                attempt = memory.live.get(FIRST)
                assert attempt is not None
                await attempt_store.record_started(connection, [(FIRST, 2_100.0)])
                await connection.execute(
                    """INSERT INTO reserved_places (workload, attempt, region, reserved_s, placements)
                       VALUES (%s, 2, %s, 2200, %s)""",
                    (W1, COAST, Jsonb(placements_to_documents(kept))),
                )
                await attempt_store.begin_evictions(connection, [(FIRST, migration)], 2_200.0)
            for event in (Started(2_100.0), leave_event(migration, 2_200.0)):
                attempt.take(event)
            (cluster,) = attempt.clusters
            attempt.reports[cluster] = AttemptStatus(FIRST, AttemptPhase.STOPPED, 2_300.0, started_s=2_100.0)
            # As a session records it.
            async with database.transaction(pipelined=True) as connection:
                await record_reports(connection, EAST, [attempt], [], 2_300.0)
            async with database.transaction() as connection:
                live = await attempt_store.load_live(connection, COAST)
                cursor = await connection.execute("SELECT count(*) FROM queue_entries")
                row = await cursor.fetchone()
            assert row is not None
            assert (len(live), row[0]) == ((1, 0) if goes_on else (0, 1))
            assert not live or live[0].standing == Standing(6, 0)

    asyncio.run(scenario())
