"""How many transactions store what waits: a handful waits for the one that is under way, many get another one."""

import asyncio

import pytest

from data_placement.catalog import Catalog
from services.clock import SystemClock
from services.database import fleet_store, tenant_store
from services.database.engine import Database
from services.database.revision_store import Revisions
from services.global_scheduler.submission import SubmissionBatcher
from services.global_scheduler.surroundings import Surroundings
from tests.database.small_world import FLEET, TENANTS, until_somebody_waits
from tests.global_scheduler_service.service import submit_request


@pytest.mark.parametrize(("one_by_one", "then_at_once", "transactions"), [(10, 0, 2), (1, 40, 2), (40, 0, 3)])
def test_a_handful_waits_for_the_transaction_under_way(
    database_url: str, one_by_one: int, then_at_once: int, transactions: int
) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await fleet_store.apply_fleet(connection, FLEET)
                await tenant_store.apply_tenants(connection, TENANTS)
            surroundings = Surroundings.of(FLEET, TENANTS, Catalog(), Revisions(1, 1, 1))
            batcher = SubmissionBatcher(database, SystemClock(), lambda: surroundings)
            running = asyncio.ensure_future(batcher.run())
            async with database.transaction() as connection:
                await connection.execute("LOCK TABLE workloads IN SHARE MODE")
                calls = [asyncio.ensure_future(_submit(batcher))]
                await until_somebody_waits(database)
                for _ in range(one_by_one):
                    calls.append(asyncio.ensure_future(_submit(batcher)))
                    # The one that would store it has had its chance after this.
                    await connection.execute("SELECT 1")
                calls += [asyncio.ensure_future(_submit(batcher)) for _ in range(then_at_once)]
            await asyncio.gather(*calls)
            async with database.transaction() as connection:
                cursor = await connection.execute("SELECT count(*), count(DISTINCT xmin::text) FROM workloads")
                assert await cursor.fetchone() == (1 + one_by_one + then_at_once, transactions)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())


async def _submit(batcher: SubmissionBatcher) -> None:
    (stored,) = await batcher.submit([submit_request()], lambda index: f"requests[{index}].")
    assert not stored.existed
