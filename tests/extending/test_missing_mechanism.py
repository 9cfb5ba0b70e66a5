"""The fleet names a mechanism of a package that is not there any more: the region says so, and waits for the remedy."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from domain.fleet import Fleet
from services.clock import SystemClock
from services.configuration import Configuration
from services.database import fleet_store
from services.database.engine import Database
from services.regional_scheduler.tier import RegionalSchedulerTier
from tests.cluster_manager.fleets import cluster, gpu_machine, region
from tests.extending.logged import logged

EAST = region(replace(cluster("reserved", [gpu_machine("r0", 8)]), mechanism="of_a_package"))


def test_a_region_without_its_mechanism_waits_for_it(database_url: str) -> None:
    told = (
        "cluster reserved: there is no placement mechanism of_a_package; there is cells, packing; install the package"
    )

    async def run() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await fleet_store.apply_fleet(connection, Fleet((EAST,)))
            tier = RegionalSchedulerTier(EAST.region, database, SystemClock(), Configuration())
            address = f"127.0.0.1:{await tier.start('127.0.0.1:0')}"
            with logged(told) as heard, logged("session begins", field="event") as begins:
                running = asyncio.ensure_future(tier.run(address, "test"))
                async with asyncio.timeout(30.0):
                    await heard.wait()
                    assert not running.done()
                    packed = replace(EAST, clusters=(replace(EAST.clusters[0], mechanism="packing"),))
                    async with database.transaction() as connection:
                        await fleet_store.apply_fleet(connection, Fleet((packed,)))
                    await begins.wait()
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
            await tier.stop(0.0)

    asyncio.run(run())
