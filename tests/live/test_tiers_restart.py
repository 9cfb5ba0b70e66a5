"""Each tier is ended and started again while hundreds of workloads run: nothing that runs is stopped by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from services.database.channels import EVENT_CHANNEL
from tests.live.running import LiveRun, in_live_service
from tests.live.world import Mix, workloads

pytestmark = pytest.mark.live

_COUNT = 160
_EVENTS_WITHOUT_A_TIER = 3
_LOOK_INTERVAL_REAL_S = 0.5


def test_every_tier_in_turn(database_url: str, tmp_path: Path, generator: np.random.Generator) -> None:
    async def scenario(run: LiveRun) -> None:
        await run.submit(workloads(_COUNT, generator, Mix(shortest_s=300.0)))
        await run.follow(until=lambda event: event.event == "started")
        for name in run.service.tiers:
            # In the middle of whatever it does: that is another thing each time.
            await run.service.stop(name)
            await _until_more_happened(run)
            await run.service.start(name)
            await run.service.wait_until_held(run.database)
        await run.follow()
        report = run.check()
        await run.check_nothing_is_left()
        assert report.events_by_kind["completed"] == _COUNT
        # What ran was adopted: the only thing that ended an attempt before its time was a better workload.
        assert report.events_by_kind.get("failed", 0) == 0
        assert run.count("evicted") == run.count("evicted", cause="preempted") > 0

    in_live_service(database_url, tmp_path, scenario)


async def _until_more_happened(run: LiveRun) -> None:
    """A few things happen, also without this tier (or nothing is left that could)."""
    before, _ = await _look(run)
    async with run.database.listen(EVENT_CHANNEL) as subscription:
        while True:
            events, running = await _look(run)
            if events >= before + _EVENTS_WITHOUT_A_TIER or running == 0:
                return
            await subscription.wait(_LOOK_INTERVAL_REAL_S)


async def _look(run: LiveRun) -> tuple[int, int]:
    """How many events there are, and how many attempts run."""
    async with run.database.transaction() as connection:
        cursor = await connection.execute(
            "SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM attempts WHERE state = 'RUNNING')"
        )
        row = await cursor.fetchone()
    assert row is not None
    return row[0], row[1]
