"""What workloads ask for is remembered, and asked for by several at once over one connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from domain.identifiers import WorkloadId
from services.database.engine import Database
from services.database.pipeline import together
from services.regional_scheduler.specifications import SpecificationCache
from services.wire.workloads import specification_to_proto
from tests.database.small_world import specification, submission, submit

W1, W2, W3 = (WorkloadId(f"w{number:06}") for number in (1, 2, 3))


def test_what_is_forgotten_while_the_rest_is_asked_for_is_found_all_the_same(database_url: str) -> None:
    """What a region has won, and what it is to answer, is looked up at the same time."""
    serialized = specification_to_proto(specification()).SerializeToString()

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await submit(connection, [replace(submission(number), serialized=serialized) for number in (1, 2, 3)])
            cache = SpecificationCache(capacity=1)
            async with database.transaction(pipelined=True) as connection:
                await cache.workloads(connection, [W1])
                others, found = await together(
                    connection, cache.workloads(connection, [W3]), cache.workloads(connection, [W1, W2])
                )
        assert list(others) == [W3]
        assert list(found) == [W1, W2]

    asyncio.run(scenario())
