"""What the on-demand copies of tables remember of workloads that wait for data."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from domain.identifiers import RegionId
from domain.life_cycle import State
from services.data_placement.data_use_look import QueuedWorkloads
from services.database import user_request_store
from services.database.engine import Database
from services.wire.workloads import specification_to_proto
from tests.database.small_world import submission, submit


def test_never_remembers_what_a_workload_asked_for_before_it_was_changed(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            one = submission(1)
            await submit(connection, [one])
            await connection.execute("UPDATE queue_entries SET priority = 1")
            queued = QueuedWorkloads()
            for regions in ((RegionId("east"),), (RegionId("west"),)):
                changed = replace(one.specification, regions=regions)
                serialized = specification_to_proto(changed).SerializeToString(deterministic=True)
                await user_request_store.change(connection, {one.workload: (changed, serialized)}, keep_places=True)
                ((_, _, asked),) = await queued.head(connection, [State.PENDING], 10)
                assert asked.regions == regions

    asyncio.run(scenario())
