"""What comes while a scan pass rests gets the place that the pass would have given it, and nothing else is written."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from domain.tenant_limits import TenantLimits
from services.clock import SystemClock
from services.database import fleet_store, lease_store, tenant_store, workload_store
from services.database.engine import Database
from services.database.lease_store import GLOBAL_LEASE
from services.global_scheduler.scan_loop import ScanLoop
from tests.database.small_world import ADS, FLEET, TENANTS, VISION, specification, submission
from tests.global_scheduler_service.service import CONFIGURATION

_ORDER = """SELECT workload, credit FROM queue_entries WHERE priority IS NOT NULL
             ORDER BY priority, level, -credit, submitted_s, workload"""


def test_newcomers_are_ranked_as_of_the_last_pass(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            now = SystemClock().now()

            async def submit(numbers: Sequence[int], ago_s: float) -> None:
                owners = {number: ADS if number % 2 else VISION for number in numbers}
                async with database.transaction() as connection:
                    await workload_store.insert_submissions(
                        connection,
                        [
                            submission(number, specification(owners[number], gpus=1), submitted_s=now - ago_s + number)
                            for number in numbers
                        ],
                    )

            async def queue() -> list[tuple[str, float]]:
                async with database.transaction() as connection:
                    return [(row[0], row[1]) for row in await (await connection.execute(_ORDER)).fetchall()]

            async with database.transaction() as connection:
                await fleet_store.apply_fleet(connection, FLEET)
                await tenant_store.apply_tenants(connection, TENANTS)
                lease = await lease_store.acquire(connection, GLOBAL_LEASE, "test", "nowhere", 1, 600.0)
            assert lease is not None
            loop = ScanLoop(database, SystemClock(), CONFIGURATION)
            assert await loop.rank_newcomers(lease) == 0  # no pass has been made
            await submit(range(1, 5), 100.0)
            await loop.run_pass(lease)
            ranked = await queue()
            assert len(ranked) == 4
            await submit(range(5, 9), 50.0)
            assert await loop.rank_newcomers(lease) == 4
            after = await queue()
            assert [line for line in after if line in ranked] == ranked
            assert await loop.rank_newcomers(lease) == 0
            await loop.run_pass(lease)
            assert [name for name, _ in await queue()] == [name for name, _ in after]

            # What a limit keeps back is no newcomer, and is one when the limit leaves it room.
            async with database.transaction() as connection:
                limited = replace(TENANTS[0], limits=TenantLimits(max_running=2))
                await tenant_store.apply_tenants(connection, (limited, *TENANTS[1:]))
            await loop.run_pass(lease)
            assert await loop.rank_newcomers(lease) == 0
            async with database.transaction() as connection:
                await tenant_store.apply_tenants(connection, TENANTS)
            assert await loop.rank_newcomers(lease) == 2

    asyncio.run(scenario())
