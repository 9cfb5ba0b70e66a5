"""Two schedulers are started for one region: one works, the other stands by and takes over."""

from __future__ import annotations

from pathlib import Path

import grpc
import numpy as np
import pytest

from tests.live.running import LiveRun, in_live_service
from tests.live.world import Mix, workloads
from topmast.v1 import regional_scheduler_pb2, regional_scheduler_pb2_grpc

# A machine that is busy elsewhere may lose a lease of three seconds, and then the wrong one of the two stands by.
pytestmark = pytest.mark.chaos

_COUNT = 60


def test_the_one_that_stands_by_does_nothing_until_the_other_is_gone(
    database_url: str, tmp_path: Path, generator: np.random.Generator
) -> None:
    async def scenario(run: LiveRun) -> None:
        address = await run.service.start("regional/east", alias="stands by")
        await run.submit(workloads(_COUNT, generator, Mix(shortest_s=300.0)))
        await run.follow(until=lambda event: event.event == "started" and event.region == "east")
        assert await _address(run) != address
        async with grpc.aio.insecure_channel(address) as channel:
            standby: regional_scheduler_pb2_grpc.RegionalSchedulerAsyncStub = (
                regional_scheduler_pb2_grpc.RegionalSchedulerStub(channel)
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await standby.GetInventory(regional_scheduler_pb2.GetInventoryRequest())
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        await run.service.stop("regional/east")
        await run.follow(until=lambda event: event.event == "dispatched" and event.region == "east")
        assert await _address(run) == address
        await run.follow()
        report = run.check()
        await run.check_nothing_is_left()
        assert report.events_by_kind.get("failed", 0) == 0

    in_live_service(database_url, tmp_path, scenario)


async def _address(run: LiveRun) -> str:
    status = await run.client.status()
    (address,) = (tier.address for tier in status.tiers if (tier.tier, tier.name) == ("regional", "east"))
    return address
