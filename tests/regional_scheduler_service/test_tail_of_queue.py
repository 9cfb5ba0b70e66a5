"""However often the queue is ranked anew, the auctions come to its end: what has room there starts (I14)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId, WorkloadId
from domain.resources import TaskResources
from services.database import fleet_store, tenant_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.workload_store import insert_submissions
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, TENANTS, specification, submission
from tests.regional_scheduler_service.regions_of_one_process import RegionsOfOneProcess
from tests.regional_scheduler_service.test_auctioneering import AuctioningRegion, open_region

BUSY, IDLE = GpuModel("A100"), GpuModel("H100")
MANY = 100
SHAPES = 30
PASSES = 20
LAST = WorkloadId(f"w{MANY + 1:06}")
MACHINES = (
    Machine(MachineId("east-0"), BUSY, 8, 96.0, 1024.0),
    Machine(MachineId("east-1"), IDLE, 8, 96.0, 1024.0),
)
FLEET = Fleet((Region(EAST, (Cluster(ClusterId("east-a"), (Rack(RackId("r0"), MACHINES),)),)),))
FAR_BUSY = Machine(MachineId("coast-0"), BUSY, 8, 96.0, 1024.0)
COAST = Region(RegionId("coast"), (Cluster(ClusterId("coast-a"), (Rack(RackId("r1"), (FAR_BUSY,)),)),))


async def submit_queue(connection: AnyConnection, fleet: Fleet = FLEET) -> None:
    """Many that find no room, of many shapes, and behind them one that does."""
    await fleet_store.apply_fleet(connection, fleet)
    await tenant_store.apply_tenants(connection, TENANTS)
    queue = []
    for number in range(1, MANY + 2):
        last = number == MANY + 1
        asked = TaskResources(gpus=1, gpu_model=IDLE if last else BUSY, cpus=float(1 + number % SHAPES))
        one = specification()
        one = replace(one, jobs=(replace(one.jobs[0], tasks=1, resources=asked),))
        serialized = specification_to_proto(one).SerializeToString()
        queue.append(replace(submission(number), specification=one, serialized=serialized))
    await insert_submissions(connection, queue)
    await connection.execute("UPDATE queue_entries SET priority = 1, credit = -submitted_s, within_quota = false")
    await connection.execute("UPDATE machines SET state = 'draining' WHERE gpu_model = %s", (BUSY,))


async def rank(connection: AnyConnection) -> None:
    """As a scan pass does that changes nothing."""
    await connection.execute("INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (1, 1, 0, 0)")


async def is_queued(connection: AnyConnection, workload: WorkloadId) -> bool:
    cursor = await connection.execute("SELECT 1 FROM queue_entries WHERE workload = %s", (workload,))
    return await cursor.fetchone() is not None


async def walk(database: Database, *regions: AuctioningRegion) -> int:
    """Steps of all regions, with a pass before each, until the last one has left the queue; how many it took."""
    for taken in range(PASSES):
        await database.run(rank)
        for region in (*regions, *regions):
            await region.step()
        if not await database.run(lambda connection: is_queued(connection, LAST)):
            return taken
    raise AssertionError(f"it is still queued after {PASSES} passes")


def test_what_has_room_is_reached_although_passes_come_before_the_walk_is_through(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await submit_queue(connection)
            await walk(database, await open_region(database, EAST))

    asyncio.run(scenario())


async def say_there_is_room(connection: AnyConnection) -> None:
    """As a region does after a release that is enough for any one of what was refused; another one takes it every time."""
    await connection.execute("UPDATE auction_refusals SET holds = false, has_room = true")


def test_what_has_room_is_reached_although_room_for_all_others_comes_free_all_the_time(database_url: str) -> None:
    async def scenario() -> int:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await submit_queue(connection)
            region = await open_region(database, EAST, window=8)
            await database.run(rank)
            for taken in range(4 * PASSES):
                await database.run(say_there_is_room)
                await region.step()
                if not await database.run(lambda connection: is_queued(connection, LAST)):
                    return taken
            raise AssertionError(f"it is still queued after {4 * PASSES} steps")

    # Of two rounds one goes on, with eight of the kinds that were not asked yet; a step opens or answers one.
    assert asyncio.run(scenario()) <= 4 * (SHAPES // 8 + 2)


def test_it_is_reached_where_rounds_are_continued_too(database_url: str) -> None:
    """A round that is continued decides more; the walk goes back to the head after it as often."""
    others = RegionsOfOneProcess()

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await submit_queue(connection, Fleet((COAST, *FLEET.regions)))
            regions = [await open_region(database, one, window=64, others=others) for one in (COAST.region, EAST)]
            await walk(database, *regions)
        assert others.asked > 0

    asyncio.run(scenario())
