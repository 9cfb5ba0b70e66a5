"""What was won is dispatched only as far as the tenant may run so much, whatever a scan pass let into the auctions before."""

import asyncio
from dataclasses import replace

from domain.tenant_limits import TenantLimits
from services.database import tenant_store
from services.database.engine import Database
from services.regional_scheduler.auction_turn import begin_turn
from tests.regional_scheduler_service.test_auctioneering import (
    SEEDS,
    TENANT,
    StoppedClock,
    crowd,
    open_region,
    prepare,
)

_LIMIT = 2


def test_never_more_live_than_a_tenant_may_run(database_url: str) -> None:
    async def scenario() -> None:
        plan = crowd(SEEDS[0])
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await prepare(connection, plan)
                limited = replace(TENANT, limits=TenantLimits(max_running=_LIMIT))
                await tenant_store.apply_tenants(connection, (limited,))
            regions = [await open_region(database, region) for region in plan.regions]
            given_back = live = 0
            while not given_back or live < _LIMIT:
                for region in regions:
                    region.turn = await begin_turn(database, region.memory, region.auctioneer, StoppedClock())
                    if region.turn.dispatched is not None:
                        given_back += region.turn.dispatched.given_back
                        for attempt in region.turn.dispatched.attempts:
                            region.memory.live.add(attempt)
                    await region.auction()
                async with database.transaction() as connection:
                    cursor = await connection.execute("SELECT count(*) FROM attempts WHERE ended_s IS NULL")
                    ((live,),) = await cursor.fetchall()
                assert live <= _LIMIT

    asyncio.run(scenario())
