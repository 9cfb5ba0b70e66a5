"""Regions and hardware that are taken out of the fleet while it works: nobody waits for them, and what wanted them says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from domain.fleet import Fleet
from domain.table import Table
from domain.workload import Emulated
from services.configuration import LeaseConfiguration
from services.wire.fleets import fleet_to_proto
from tests.live.running import CONFIGURATION, PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import CLICKS, EAST, FLEET, RANKING, V100, one_job
from topmast import QueuePosition
from topmast.v1 import regional_scheduler_pb2 as messages

pytestmark = pytest.mark.live

_PATIENT = CONFIGURATION.model_copy(update={"lease": LeaseConfiguration(duration_real_s=30.0)})
"""A lease must not end because the machine is busy: it is given back here by whoever has no region to serve."""

WITHOUT_WEST = Fleet(tuple(region for region in FLEET.regions if region.region == EAST))
TABLES_OF_EAST = (Table(CLICKS, 10**12, EAST),)


async def _participants(run: LiveRun) -> list[str]:
    """Of the newest auction round."""
    async with run.database.transaction() as connection:
        cursor = await connection.execute("SELECT participants FROM auction_rounds ORDER BY round DESC LIMIT 1")
        row = await cursor.fetchone()
    assert row is not None
    return list(row[0])


async def _until_alive(run: LiveRun, region: str, *, alive: bool) -> None:
    async with asyncio.timeout(PATIENCE_REAL_S):
        while True:
            tiers = {tier.name: tier.alive for tier in (await run.client.status()).tiers if tier.tier == "regional"}
            if tiers[region] is alive:
                return
            await asyncio.sleep(0.05)


async def _until_it_says(run: LiveRun, workload: str, words: str) -> QueuePosition:
    async with asyncio.timeout(PATIENCE_REAL_S):
        while True:
            position = (await run.client.get(workload)).queue_position
            if position is not None and words in position.reason:
                return position
            await asyncio.sleep(0.05)


def test_a_region_that_is_taken_out_leaves_the_auctions_and_may_come_back(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        async with run.regional("west") as scheduler:
            for number in range(3):
                await scheduler.DrainMachine(messages.DrainMachineRequest(machine=f"west-a-m{number}"))
        (waiting,) = await run.submit([one_job("wants-v100", RANKING, Emulated(60.0), gpus=8, model=V100)])
        await run.until_event("waiting", waiting)
        assert await _participants(run) == ["east", "west"]

        await run.client.apply_fleet(fleet_to_proto(WITHOUT_WEST, TABLES_OF_EAST))
        (first,) = await run.submit([one_job("first", RANKING, Emulated(60.0), gpus=8)])
        await run.until_event("completed", first)
        (second,) = await run.submit([one_job("second", RANKING, Emulated(60.0), gpus=8)])
        await run.until_event("completed", second)
        assert await _participants(run) == ["east"]
        await _until_alive(run, "west", alive=False)
        shown = await _until_it_says(run, waiting, "has the hardware for it any more")
        assert shown.diagnosis is not None
        assert (shown.diagnosis.reason, shown.diagnosis.region) == ("no_such_gpu_model", "east")
        assert "west" not in shown.reason

        await run.client.apply_fleet(fleet_to_proto(FLEET, TABLES_OF_EAST))
        await run.until_event("completed", waiting)
        assert await _participants(run) == ["east", "west"]
        await _until_alive(run, "west", alive=True)
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)
