"""A process that carries migrations out, as the global tier does, and nothing else: for tests that kill it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from formats.data_section import DataRegionSection, DataSection
from services.clock import SystemClock
from services.data_placement.migration_loop import migration_loop_for
from services.database.engine import Database
from services.database.lease_store import GLOBAL_LEASE
from services.global_scheduler.surroundings import SurroundingsKeeper
from services.tiers.lease_keeper import LeaseKeeper
from services.tiers.side_by_side import until_one_ends

LEASE_REAL_S = 1.0


async def move_tables(database_url: str, folder: Path) -> None:
    """Under the global lease, between the folders of the regions a, b and c; until it is killed."""
    regions = {name: DataRegionSection(storage=f"file://{folder / name}") for name in "abc"}
    section, clock = DataSection(regions=regions), SystemClock()
    async with Database(database_url) as database:
        surroundings = SurroundingsKeeper(database)
        loop = migration_loop_for(section, database, clock, surroundings)
        assert loop is not None
        keeper = LeaseKeeper(database, GLOBAL_LEASE, f"process-{os.getpid()}", "nowhere", LEASE_REAL_S)
        await surroundings.refresh()
        while True:
            lease = await keeper.wait_until_held()
            moving = loop.run(lease, keeper.certain_until_real_s)
            await until_one_ends(keeper.keep(lease), surroundings.run(lambda: None), moving)


if __name__ == "__main__":
    asyncio.run(move_tables(sys.argv[1], Path(sys.argv[2])))
