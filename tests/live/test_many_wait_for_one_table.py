"""Thousands of workloads wait for one table that is nowhere near a free GPU: one copy serves them all."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from data_placement.migrations.migration import Migration
from domain.fleet import Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, RegionId
from domain.resources import Quota
from domain.tenant import Tenant
from domain.workload import Emulated, TableInput
from services.data_placement import migration_store
from services.data_placement.settings import DataSettings
from services.database.channels import DATA_CHANNEL
from services.database.connection import AnyConnection
from tests.live.running import CONFIGURATION, PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import A100, EAST, RANKING, SPEECH, V100, WEST, gpu_cluster, one_job

pytestmark = pytest.mark.live

SOUTH = RegionId("south")
_COUNT = 2_000
_FLEET = Fleet(
    (
        Region(EAST, (gpu_cluster("east-a", A100, 4),)),
        Region(WEST, (gpu_cluster("west-a", V100, 150),)),
        Region(SOUTH, (gpu_cluster("south-a", V100, 150),)),
    )
)
"""The table is where the A100 are."""
_TENANTS = (Tenant(RANKING, 0, Quota.of({ANY_GPU_MODEL: 2_500})),)


async def _rate(run: LiveRun, bytes_per_day: float) -> None:
    async def declare(connection: AnyConnection) -> None:
        for target in (WEST, SOUTH):
            await connection.execute(
                """INSERT INTO data_links VALUES (%s, %s, %s)
                   ON CONFLICT (source, target) DO UPDATE SET bytes_per_day = EXCLUDED.bytes_per_day""",
                (EAST, target, bytes_per_day),
            )

    await run.database.run(declare)


async def _states(run: LiveRun) -> Counter[str]:
    async with run.database.transaction() as connection:
        cursor = await connection.execute("SELECT state, count(*) FROM queue_entries GROUP BY state")
        return Counter({str(state): int(count) for state, count in await cursor.fetchall()})


async def _copies(run: LiveRun) -> list[Migration]:
    async with run.database.transaction() as connection:
        return await migration_store.load_active(connection)


def test_two_thousand_workloads_get_one_copy(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        await _rate(run, 1.0)
        wanted = replace(one_job("w", RANKING, Emulated(60.0, 60.0), model=V100), tables=(TableInput(SPEECH),))
        waiting = set[str]()
        for begin in range(0, _COUNT, 500):
            waiting |= {*await run.submit([replace(wanted, name=f"w{begin + number}") for number in range(500)])}

        async with asyncio.timeout(PATIENCE_REAL_S), run.database.listen(DATA_CHANNEL) as subscription:
            while (await _states(run))["AWAITING_DATA"] < _COUNT or not await _copies(run):
                assert len(await _copies(run)) <= 1
                await subscription.wait(0.5)
        # Meanwhile what needs no copy runs, one after the other: each look at those that wait takes its turn.
        (copy,) = await _copies(run)
        for number in range(10):
            (other,) = await run.submit([one_job(f"other-{number}", RANKING, Emulated(60.0, 60.0), model=A100)])
            await run.until_event("completed", other)
            assert [each.number for each in await _copies(run)] == [copy.number]
        await _rate(run, 1e18)
        await run.follow()
        assert run.count("table_moved") == 1
        started = Counter(
            event.region for event in run.events if event.event == "started" and event.workload in waiting
        )
        assert started == {copy.target: _COUNT}
        run.check(_FLEET, _TENANTS)

    configuration = CONFIGURATION.model_copy(update={"data": DataSettings(emulated=True)})
    in_live_service(
        database_url, tmp_path / "home", scenario, fleet=_FLEET, tenants=_TENANTS, configuration=configuration
    )
