"""A region that finds its memory out of order says so, counts it, and goes on with a new one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_manager.capacity.tables import MILLICPUS
from domain.workload import Emulated
from services.regional_scheduler import invariant_watch, session
from services.regional_scheduler.invariant_watch import InvariantWatch
from services.regional_scheduler.region_memory import RegionMemory
from tests.live.running import LiveRun, in_live_service
from tests.live.world import FLEET, RANKING, V100, one_job

pytestmark = pytest.mark.live


class Sessions:
    """The newest memory of each region."""

    def __init__(self) -> None:
        self.memories: dict[str, RegionMemory] = {}

    def watch(self, *arguments: object) -> InvariantWatch:
        """What a session makes for itself, noticed."""
        memory = next(argument for argument in arguments if isinstance(argument, RegionMemory))
        self.memories[memory.region.region] = memory
        return InvariantWatch(*arguments)  # type: ignore[arg-type]  # handed on as they come


async def _violations(run: LiveRun) -> dict[str, int]:
    return {region.region: region.invariant_violations for region in (await run.client.status()).regions}


def test_a_violation_is_counted_in_the_status_and_the_region_goes_on(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions()
    monkeypatch.setattr(invariant_watch, "CHECK_EVERY_REAL_S", 0.2)
    monkeypatch.setattr(session, "InvariantWatch", sessions.watch)

    async def scenario(run: LiveRun) -> None:
        (long,) = await run.submit([one_job("long", RANKING, Emulated(1e6, 60.0), gpus=8, model=V100)])
        started = await run.until_event("started", long)
        assert set((await _violations(run)).values()) == {0}
        broken = sessions.memories[started.region or ""]
        broken.inventory.clusters[0].layout.arrays.state[0, MILLICPUS] -= 1
        event = await run.follow(until=lambda event: event.event == "invariant_broken")
        assert event.region == started.region
        assert "what is free" in str(event.details["invariant"])
        assert await _violations(run) == {
            region.region: int(region.region == started.region) for region in FLEET.regions
        }
        # The attempt did not notice, and the region decides again.
        await run.client.cancel(long)
        (short,) = await run.submit([one_job("short", RANKING, Emulated(60.0, 60.0), gpus=8, model=V100)])
        await run.follow()
        assert run.ended.keys() == {long, short}
        assert (run.count("invariant_broken"), run.count("failed")) == (1, 0)

    in_live_service(database_url, tmp_path, scenario)
