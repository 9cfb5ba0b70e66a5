"""How often a region waits for the database in a round: between continents that is what a round takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from services.database.engine import Database
from tests.database.proxies import CountingProxy, counting_proxy
from tests.regional_scheduler_service.test_auctioneering import open_region, prepare
from tests.regional_scheduler_service.test_interleavings import alike_regions


class _AtOnce(ThreadPoolExecutor):
    """Plans are made while nothing else happens: else an answer that nobody waits for might arrive meanwhile, or not."""

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*arguments, **named))
        return done


async def _counted(proxy: CountingProxy, ours: Collection[int], *steps: Callable[[], Awaitable[object]]) -> int:
    """Over these connections: another one comes later, to wake others."""
    before = {number: count for number, count in proxy.so_far().items() if number in ours}
    for step in steps:
        await step()
    return proxy.since(before)


def test_a_round_takes_few_round_trips(database_url: str) -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().set_default_executor(_AtOnce(1))
        plan = alike_regions()
        async with Database(database_url) as database, database.transaction() as connection:
            await prepare(connection, plan)
        async with counting_proxy(database_url) as proxy, Database(proxy.url) as database:
            first, second, third = [await open_region(database, region, window=1) for region in plan.regions]
            for region in (first, second, third):
                await region.dispatch()  # opens its connection, and reads what is read once
            ours = tuple(proxy.so_far())
            await first.auction()  # opens a round
            answering = [await _counted(proxy, ours, one.dispatch, one.auction) for one in (first, second)]
            closing = await _counted(proxy, ours, third.dispatch, third.auction)
            dispatching = await _counted(proxy, ours, first.dispatch)
        # All but the one that has opened the round read specifications that they did not know.
        assert answering == [3, 4]
        assert closing == 8
        assert dispatching == 4

    asyncio.run(scenario())
