"""Thousands of workloads wait for one table, or for several: when it is there they start, in bounded turns, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pytest

from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, MachineId, RackId, RegionId, TableId
from domain.resources import Quota, TaskResources
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import TableInput
from services.database import catalog_store, fleet_store, tenant_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.revision_store import load_revisions
from services.database.workload_store import insert_submissions
from services.wire.workloads import specification_to_proto
from tests.database.proxies import CountingProxy, counting_proxy
from tests.database.small_world import ADS, specification, submission
from tests.regional_scheduler_service.test_auctioneering import AuctioningRegion, open_region

STORE, WORK = RegionId("store"), RegionId("work")
REGIONS = (STORE, WORK)
STORED_BESIDE, ASKED_FOR = GpuModel("A100"), GpuModel("H100")
GPUS_PER_MACHINE = 8
WINDOW = 256
MOST_ROUND_TRIPS_IN_A_TURN = 30
"""Of one region: taking over, answering, closing, opening and dispatching, however many wait."""


def _region(region: RegionId, model: GpuModel, machines: int) -> Region:
    rack = tuple(
        Machine(MachineId(f"{region}-{n:04}"), model, GPUS_PER_MACHINE, 960.0, 11520.0) for n in range(machines)
    )
    return Region(region, (Cluster(ClusterId(f"{region}-a"), (Rack(RackId("r0"), rack),)),))


def _fleet(room: int) -> Fleet:
    """The tables are in one region, the GPUs that are asked for in the other: so many of them."""
    model = ASKED_FOR if room else STORED_BESIDE
    machines = room // GPUS_PER_MACHINE or 1
    return Fleet((_region(STORE, STORED_BESIDE, 1), _region(WORK, model, machines)))


def _tables(count: int, copied: int) -> tuple[Table, ...]:
    """The first `copied` of them have a copy where the GPUs are."""
    return tuple(Table(TableId(f"t{n:04}"), 10, STORE, (WORK,) if n < copied else ()) for n in range(count))


@dataclass(frozen=True, slots=True)
class _World:
    """So many workloads of one GPU each, which wait for so many tables in turn, and so many GPUs for them."""

    workloads: int
    tables: int
    room: int

    async def prepare(self, connection: AnyConnection, *, copied: int = 0) -> None:
        await fleet_store.apply_fleet(connection, _fleet(self.room))
        await catalog_store.apply_tables(connection, _tables(self.tables, copied))
        await tenant_store.apply_tenants(connection, (Tenant(ADS, 1, Quota.of({ANY_GPU_MODEL: self.workloads})),))
        queue = []
        for number in range(self.workloads):
            one = specification()
            one = replace(
                one,
                jobs=(replace(one.jobs[0], resources=TaskResources(gpus=1, gpu_model=ASKED_FOR)),),
                tables=(TableInput(TableId(f"t{number % self.tables:04}")),),
            )
            serialized = specification_to_proto(one).SerializeToString()
            queue.append(replace(submission(number), specification=one, serialized=serialized))
        await insert_submissions(connection, queue)
        await connection.execute("UPDATE queue_entries SET priority = 1, credit = -submitted_s, within_quota = true")
        await _rank(connection)


async def _rank(connection: AnyConnection) -> None:
    """As a scan pass does that changes nothing."""
    await connection.execute("INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (1, 1, 0, 0)")


async def _open(database: Database, window: int = WINDOW) -> list[AuctioningRegion]:
    return [await open_region(database, region, window=window) for region in REGIONS]


async def _take_over_tables(database: Database, regions: Sequence[AuctioningRegion]) -> None:
    """As sessions do when the catalog has changed."""
    for region in regions:
        async with database.transaction() as connection:
            await catalog_store.update_catalog(connection, region.memory.catalog)
            region.memory.revisions = await load_revisions(connection)


async def _settle(database: Database, regions: Sequence[AuctioningRegion]) -> None:
    """Until there is nothing left to say, to auction and to dispatch, also after another pass."""
    for _ in range(3):
        while any([await region.step() for region in regions]):
            pass
        await database.run(_rank)


async def _queued(connection: AnyConnection) -> dict[str, int]:
    """How many are in which state, and for which reason."""
    cursor = await connection.execute(
        "SELECT state, diagnosis->>'reason', count(*) FROM queue_entries GROUP BY 1, 2 ORDER BY 1, 2"
    )
    return {f"{state}: {reason}": count for state, reason, count in await cursor.fetchall()}


async def _dispatched(connection: AnyConnection) -> tuple[int, int, int]:
    """Attempts, workloads that have any, and events that say so."""
    cursor = await connection.execute(
        """SELECT count(*), count(DISTINCT workload), (SELECT count(*) FROM events WHERE event = 'dispatched')
             FROM attempts"""
    )
    row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1], row[2]


async def _most_round_trips_in_a_turn(proxy: CountingProxy, regions: Sequence[AuctioningRegion]) -> tuple[int, int]:
    """Of any turn until there is nothing left to do, and of all of them."""
    before, most, more = proxy.so_far(), 0, True
    while more:
        more = False
        for region in regions:
            begun = proxy.so_far()
            more |= await region.step()
            most = max(most, proxy.since(begun))
    return most, proxy.since(before)


@pytest.mark.parametrize("tables", [1, 40, 400])
def test_thousands_that_wait_for_tables_start_in_bounded_turns(database_url: str, tables: int) -> None:
    world = _World(5_000 if tables == 1 else 1_200, tables, 5_000)

    async def scenario() -> None:
        async with counting_proxy(database_url) as proxy, Database(proxy.url) as database:
            async with database.transaction() as connection:
                await world.prepare(connection)
            regions = await _open(database)
            most, _ = await _most_round_trips_in_a_turn(proxy, regions)
            assert most <= MOST_ROUND_TRIPS_IN_A_TURN
            assert await database.run(_queued) == {"AWAITING_DATA: no_data": world.workloads}
            for copied in sorted({(tables + 1) // 2, tables}):
                await database.run(partial(catalog_store.apply_tables, tables=_tables(tables, copied)))
                await _take_over_tables(database, regions)
                await database.run(_rank)
                most, in_all = await _most_round_trips_in_a_turn(proxy, regions)
                assert most <= MOST_ROUND_TRIPS_IN_A_TURN
                # Of a window each: the rounds, their answers and what they won; and what was not known beforehand.
                assert in_all <= 40 * (world.workloads // WINDOW + tables // 64 + 4)
            assert await database.run(_queued) == {}
            assert await database.run(_dispatched) == (world.workloads,) * 3

    asyncio.run(scenario())


def test_what_finds_no_room_when_its_table_is_there_waits_for_data_no_more(database_url: str) -> None:
    world = _World(120, 6, 16)

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await world.prepare(connection)
            regions = await _open(database)
            await _settle(database, regions)
            for copied in range(1, 7):
                await database.run(partial(catalog_store.apply_tables, tables=_tables(6, copied)))
                await _take_over_tables(database, regions)
                await _settle(database, regions)
                queued = await database.run(_queued)
                assert queued.get("AWAITING_DATA: no_data", 0) == 120 - 20 * copied
                assert sum(queued.values()) == 120 - 16

    asyncio.run(scenario())


def test_what_waits_for_room_waits_for_data_when_its_table_leaves(database_url: str) -> None:
    world = _World(40, 1, 8)

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await world.prepare(connection, copied=1)
            regions = await _open(database)
            await _settle(database, regions)
            assert "AWAITING_DATA: no_data" not in await database.run(_queued)
            await database.run(lambda connection: catalog_store.apply_tables(connection, _tables(1, 0)))
            await _take_over_tables(database, regions)
            await _settle(database, regions)
            assert await database.run(_queued) == {"AWAITING_DATA: no_data": 32}, "so that a copy is made for them"

    asyncio.run(scenario())


def test_what_no_region_had_the_hardware_for_waits_for_data_when_one_has(database_url: str) -> None:
    world = _World(10, 1, 0)

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await world.prepare(connection)
            await _settle(database, await _open(database))
            assert await database.run(_queued) == {"WAITING: no_such_gpu_model": 10}
            await database.run(lambda connection: fleet_store.apply_fleet(connection, _fleet(16)))
            await database.run(lambda connection: connection.execute("DELETE FROM leases"))
            await _settle(database, await _open(database))
            assert await database.run(_queued) == {"AWAITING_DATA: no_data": 10}

    asyncio.run(scenario())


async def _interrupted(proxy: CountingProxy, region: AuctioningRegion, round_trips: int) -> bool:
    """A turn that ends while the database is at that round trip of it, or when it is through; whether it was interrupted."""
    begun, turn = proxy.so_far(), asyncio.ensure_future(region.step())
    while not turn.done() and proxy.since(begun) < round_trips:
        await asyncio.wait({turn}, timeout=0.0)
    turn.cancel()
    try:
        await turn
    except asyncio.CancelledError:
        return True
    return False


def test_none_is_lost_or_starts_twice_when_the_release_is_interrupted_again_and_again(database_url: str) -> None:
    world = _World(96, 3, 96)

    async def scenario() -> None:
        async with counting_proxy(database_url) as proxy, Database(proxy.url) as database:
            async with database.transaction() as connection:
                await world.prepare(connection)
            await _settle(database, await _open(database))
            await database.run(lambda connection: catalog_store.apply_tables(connection, _tables(3, 3)))
            await database.run(_rank)
            interrupted, sessions = 0, 0
            while await database.run(_queued):
                await database.run(lambda connection: connection.execute("DELETE FROM leases"))
                regions = await _open(database, window=16)
                sessions += 1
                for region in (*regions, *regions):
                    await region.step()
                for region in regions:
                    interrupted += await _interrupted(proxy, region, 1 + sessions % 17)
            assert interrupted > 5
            assert await database.run(_dispatched) == (world.workloads,) * 3

    asyncio.run(scenario())
