"""Two global schedulers: one leads, the other says so; a client that knows both never asks which."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from tests.live.running import PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import Mix, workloads
from topmast import AsyncClient, UnavailableError

_COUNT = 20


def test_a_client_that_knows_both_follows_the_leader(
    database_url: str, tmp_path: Path, generator: np.random.Generator
) -> None:
    async def scenario(run: LiveRun) -> None:
        leader = run.service.address
        standby = await run.service.start("global", alias="stands by")
        async with AsyncClient(standby, attempts=1) as one, asyncio.timeout(PATIENCE_REAL_S):
            while True:
                # It may not have looked yet.
                if f"this global scheduler stands by: {leader} leads" in await _refusal(one):
                    break
                await asyncio.sleep(0.02)
        async with AsyncClient(f"{standby},{leader}") as both:
            assert [(one.tier, one.name, one.address) for one in (await both.status()).standbys] == [
                ("global", "", standby)
            ]
            watched = run.client
            run.client = both
            await run.submit(workloads(_COUNT, generator, Mix(shortest_s=300.0)))
            await run.follow(until=lambda event: event.event == "started")
            await run.service.stop("global")
            await run.submit(workloads(_COUNT, generator, Mix(shortest_s=300.0)))
            await run.follow()
            run.check()
            await run.check_nothing_is_left()
            run.client = watched
            assert [tier.address for tier in (await both.status()).tiers if tier.tier == "global"] == [standby]

    in_live_service(database_url, tmp_path, scenario)


async def _refusal(client: AsyncClient) -> str:
    with pytest.raises(UnavailableError) as refused:
        await client.status()
    return str(refused.value)
