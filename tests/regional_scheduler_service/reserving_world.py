"""Regions that auction and keep machines for gangs, on PostgreSQL, with a clock that stands still until it is moved."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from domain.clock import ManualClock
from domain.events import EventKind
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId, WorkloadId
from domain.reservation import Reservation, ReservationLimits, ReservationRule
from domain.resources import TaskResources
from domain.workload import Emulated
from services.configuration import AuctionConfiguration
from services.database import (
    event_store,
    fleet_store,
    gang_reservation_store,
    lease_store,
    queue_store,
    tenant_store,
    workload_store,
)
from services.database.engine import Database
from services.database.lease_store import Lease
from services.regional_scheduler.auction_turn import begin_turn
from services.regional_scheduler.auctioneering import Auctioneer
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.reserving import Reserving
from services.wire.workloads import specification_to_proto
from tests.database.small_world import TENANTS, specification, submission
from tests.regional_scheduler_service.regions_of_one_process import RegionsOfOneProcess

EAST, WEST = RegionId("east"), RegionId("west")
A100 = GpuModel("A100")
GANG = WorkloadId("gang")
RULE = ReservationRule(
    ReservationLimits(after_s=100.0), least_gpus=8, start_up_s=0.0, look_every_s=50.0, assumed_run_time_s=5_000.0
)
LONG_REAL_S = 600.0


def region_of(name: RegionId, machines: int = 2) -> Region:
    racked = [Machine(MachineId(f"{name}-{number}"), A100, 4, 64.0, 512.0) for number in range(machines)]
    return Region(name, (Cluster(ClusterId(f"{name}-a"), (Rack(RackId(f"{name}-r"), tuple(racked)),)),))


@dataclass
class ReservingRegion:
    """A regional scheduler, as far as auctions and reservations go."""

    database: Database
    clock: ManualClock
    memory: RegionMemory
    auctioneer: Auctioneer
    reserving: Reserving

    async def step(self) -> bool:
        """Dispatches what it has won, then takes a step in the auction; whether there may be more to do."""
        turn = await begin_turn(self.database, self.memory, self.auctioneer, self.clock)
        dispatched = () if turn.dispatched is None else turn.dispatched.attempts
        for attempt in dispatched:
            self.memory.live.add(attempt)
        objected = await self.auctioneer.object_to_refusals()
        moved = (await self.auctioneer.go_on(turn.looked, turn.lots)).moved
        return await self.auctioneer.object_to_refusals() or moved or objected or bool(dispatched)

    def end(self, workload: str) -> None:
        """What it holds here is free."""
        (key,) = [attempt.key for attempt in self.memory.live if attempt.key.workload == workload]
        self.memory.inventory.release(key)
        self.memory.live.remove(key)

    @property
    def running(self) -> set[WorkloadId]:
        return {attempt.key.workload for attempt in self.memory.live}


@dataclass
class World:
    """A service without executors, whose clock stands still until it is moved."""

    database: Database
    clock: ManualClock
    regions: list[ReservingRegion]
    rule: ReservationRule | None
    looks: int = 0

    async def at(self, now_s: float) -> None:
        """It is that late: whatever is queued is ranked and put up for auction, then reservations are looked at."""
        self.clock.advance_to(now_s)
        async with self.database.transaction() as connection:
            await connection.execute(
                "UPDATE queue_entries SET priority = 3, credit = -submitted_s, within_quota = false"
            )
            await connection.execute(
                "INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (%s, 1, 0, 0)", (now_s,)
            )
        while any([await region.step() for region in self.regions]):
            pass
        await self.look()

    async def start_all(self) -> None:
        """What was dispatched runs from now on; sessions begin anew with that."""
        async with self.database.transaction() as connection:
            await connection.execute("UPDATE attempts SET state = 'RUNNING', started_s = %s", (self.clock.now(),))
        self.regions = [
            await session(self.database, one.memory.region.region, self.clock, self.rule) for one in self.regions
        ]

    async def look(self) -> None:
        """As the sessions' loops do."""
        self.looks += 1
        for region in self.regions:
            await region.reserving.look(10.0 * self.looks)

    async def submit(
        self, name: str, *, gpus: int = 4, tasks: int = 1, run_s: float = 1_000.0, region: str = ""
    ) -> None:
        """At this moment."""
        one = specification(tenant=TENANTS[0].tenant, name=name)
        resources = TaskResources(gpus=gpus, gpu_model=A100, cpus=1.0, memory_gib=1.0)
        job = replace(one.jobs[0], tasks=tasks, resources=resources, entry_point=Emulated(run_s))
        one = replace(one, jobs=(job,), regions=(RegionId(region),) if region else ())
        queued = replace(
            submission(1, one, submitted_s=self.clock.now()),
            workload=WorkloadId(name),
            serialized=specification_to_proto(one).SerializeToString(),
        )
        await self.database.run(lambda connection: workload_store.insert_submissions(connection, [queued]))

    async def kept(self) -> dict[str, Reservation]:
        """What the database says is kept, by workload."""
        stored = await self.database.run(gang_reservation_store.load_all)
        return {str(one.reservation.workload): one.reservation for one in stored}

    async def told(self) -> list[tuple[float, str, str | None, str | None, object]]:
        """What events say of reservations: when, what, of whom, where, and why it has ended."""
        async with self.database.transaction() as connection:
            page = await event_store.read(connection, 0, 10_000)
        kinds = (EventKind.RESERVED, EventKind.RESERVATION_ENDED)
        events = [stored.event for stored in page.events if stored.event.event in kinds]
        return [(one.t, one.event.value, one.workload, one.region, one.details.get("reason")) for one in events]

    async def reason(self, workload: str) -> str:
        """Why it waits, as the queue shows it."""
        lines = await self.database.run(lambda connection: queue_store.list_head(connection, 100))
        (reason,) = [line.reason for line in lines if line.workload == workload]
        return reason


async def lease_of(database: Database, region: RegionId) -> Lease:
    name = f"{lease_store.REGIONAL_PREFIX}{region}"
    async with database.transaction() as connection:
        lease = await lease_store.acquire(connection, name, f"of {region}", "nowhere", 1, LONG_REAL_S)
    assert lease is not None
    return lease


async def session(
    database: Database, region: RegionId, clock: ManualClock, rule: ReservationRule | None = RULE
) -> ReservingRegion:
    """A new session of the region, with nothing but what the database has."""
    memory = await database.run(lambda connection: load_memory(connection, region, reservations=rule))
    assert memory is not None
    lease = await lease_of(database, region)
    auctions = AuctionConfiguration(window=8, answer_timeout_real_s=LONG_REAL_S)
    return ReservingRegion(
        database,
        clock,
        memory,
        Auctioneer(database, lease, memory, clock, auctions, RegionsOfOneProcess().ask),
        Reserving(database, lease, memory, clock, rule),
    )


def in_world(
    database_url: str,
    scenario: Callable[[World], Awaitable[None]],
    regions: Sequence[Region] = (region_of(EAST),),
    rule: ReservationRule | None = RULE,
) -> None:
    async def run() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await fleet_store.apply_fleet(connection, Fleet(tuple(regions)))
                await tenant_store.apply_tenants(connection, TENANTS)
            clock = ManualClock()
            sessions = [await session(database, region.region, clock, rule) for region in regions]
            await scenario(World(database, clock, sessions, rule))

    asyncio.run(run())


async def until_reserved(world: World) -> None:
    """a and b take the two machines until 1,000 and 2,000; the gang comes at 10, and has both kept for it at 200."""
    await world.submit("a", run_s=1_000.0)
    await world.submit("b", run_s=2_000.0)
    await world.at(0.0)
    await world.start_all()
    world.clock.advance_to(10.0)
    await world.submit("gang", tasks=2)
    await world.at(60.0)
    assert await world.kept() == {}
    await world.at(200.0)
