"""How often a region waits for the database in a round: between continents that is what a round takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from services.database.engine import Database
from tests.database.proxies import CountingProxy, counting_proxy
from tests.regional_scheduler_service.test_auctioneering import open_region, prepare
from tests.regional_scheduler_service.test_interleavings import alike_regions


async def _counted(proxy: CountingProxy, step: Callable[[], Awaitable[object]]) -> int:
    before = proxy.round_trips
    await step()
    return proxy.round_trips - before


def test_a_round_takes_few_round_trips(database_url: str) -> None:
    async def scenario() -> None:
        plan = alike_regions()
        async with Database(database_url) as database, database.transaction() as connection:
            await prepare(connection, plan)
        async with counting_proxy(database_url) as proxy, Database(proxy.url) as database:
            first, second, third = [await open_region(database, region, window=1) for region in plan.regions]
            for region in (first, second, third):
                await region.dispatch()  # opens its connection, and reads what is read once
            await first.auction()
            answering = await _counted(proxy, first.auctioneer.step), await _counted(proxy, second.auctioneer.step)
            closing = await _counted(proxy, third.auctioneer.step)
            dispatching = await _counted(proxy, first.dispatch)
        # Each of them reads a specification that it did not know; a statement may be prepared on the way.
        assert max(answering) <= 6
        assert closing <= 12
        assert dispatching <= 4

    asyncio.run(scenario())
