"""Regions take turns in any order, between dispatching what they won and answering the next round: I11 holds all the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from itertools import chain, cycle, product

from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, JobName, MachineId, RackId, RegionId, TenantId, WorkloadId
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from services.database.connection import AnyConnection
from services.database.engine import Database
from tests.regional_scheduler.auction_worlds import OfferedWorkload, WorldPlan
from tests.regional_scheduler_service.test_auctioneering import (
    AuctioningRegion,
    fates,
    fates_one_at_a_time,
    open_region,
    prepare,
)

NAMES = tuple(RegionId(f"region-{letter}") for letter in "abc")
A100 = GpuModel("a100")
BOUND = 3
"""All orders of so many steps are tried, ..."""
RANDOM = 5
"""... and so many drawn ones to the end."""
_FORGET = """TRUNCATE workloads, jobs, queue_entries, attempts, placements, awards, auction_responses, auction_rounds,
                      auction_refusals, auction_walks, scan_passes, events, quota_use CASCADE"""


def alike_regions() -> WorldPlan:
    """Three regions of one machine each, and five workloads that take a machine each: ties go to the first by name."""
    fleet = Fleet(
        tuple(
            Region(name, (Cluster(ClusterId(f"{name}/0"), (Rack(RackId(f"{name}/0/0"), (_machine(name),)),)),))
            for name in NAMES
        )
    )
    return WorldPlan(fleet, (), (tuple(_offered(number) for number in range(5)),), ((),))


def _machine(region: RegionId) -> Machine:
    return Machine(MachineId(f"{region}/0/0/0"), A100, 8, 96.0, 1024.0)


def _offered(number: int) -> OfferedWorkload:
    job = JobSpecification(JobName("main"), 1, TaskResources(gpus=8, gpu_model=A100), Emulated(600.0))
    name = WorkloadId(f"w{number:06}")
    workload = Workload(name, WorkloadSpecification(str(name), TenantId("tenant"), (job,)), float(number))
    return OfferedWorkload(workload, Standing(3, 0), 100.0 - number, 1)


def orders() -> Iterator[Iterable[int]]:
    """Which region goes on next; at the end all take turns until nothing moves."""
    yield from product(range(len(NAMES)), repeat=BOUND)
    for seed in range(RANDOM):
        rng = random.Random(seed)
        yield [rng.randrange(len(NAMES)) for _ in range(40)]


async def hold_auctions(regions: list[AuctioningRegion], order: Iterable[int]) -> None:
    """Each turn of a region is a dispatch or a step in the auction, one after the other."""
    turns = [cycle((region.dispatch, region.auction)) for region in regions]
    for position in chain([0] * 4, order):
        await next(turns[position])()
    while any([await region.step() for region in regions]):
        pass


async def forget(connection: AnyConnection) -> None:
    await connection.execute(_FORGET)


def test_no_order_of_steps_changes_what_is_decided(database_url: str) -> None:
    plan = alike_regions()
    expected = fates_one_at_a_time(plan)
    assert len({region for _, region, _ in expected.values()}) == len(NAMES) + 1, "each region wins, and some wait"

    async def scenario() -> None:
        async with Database(database_url) as database:
            for order in orders():
                async with database.transaction() as connection:
                    await forget(connection)
                    await prepare(connection, plan)
                regions = [await open_region(database, region, window=1) for region in plan.regions]
                await hold_auctions(regions, order)
                async with database.transaction() as connection:
                    assert await fates(connection, plan) == expected, f"in the order {order}"
                    cursor = await connection.execute("UPDATE leases SET expires_at = now()")
                    assert cursor.rowcount == len(NAMES)

    asyncio.run(scenario())
