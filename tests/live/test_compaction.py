"""A gang that finds idle GPUs but no machine gets one: a small attempt goes on elsewhere, by its checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from domain.identifiers import GpuModel
from domain.workload import Emulated
from formats.scheduler_file import CompactionSection
from tests.live.running import CONFIGURATION, LiveRun, in_live_service
from tests.live.world import A100, EAST, RANKING, V100, WEST, one_job

pytestmark = pytest.mark.live

_WORK = Emulated(72_000.0, 60.0)
# On this clock half an hour is three seconds.
_COMPACTING = CONFIGURATION.model_copy(update={"compaction": CompactionSection(enabled=True, checkpoint_within_s=1e6)})


async def _started(run: LiveRun, name: str, gpus: int, model: GpuModel = V100) -> str:
    (workload,) = await run.submit([one_job(name, RANKING, _WORK, gpus=gpus, model=model)])
    await run.until_event("started", workload)
    return workload


def test_what_a_gang_lacks_goes_on_in_another_region(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        # West is full but for 3 GPUs that are held for now; east has 8 left, of which one small attempt takes 3.
        full = [(WEST, f"v-{number}", 8, V100) for number in range(3)]
        full += [(WEST, "w-0", 8, A100), (WEST, "w-1", 5, A100), (WEST, "leaves", 3, A100)]
        full += [(EAST, f"e-{number}", 8, A100) for number in range(3)]
        names: dict[str, str] = {}
        for region, name, gpus, model in full:
            asked = replace(one_job(name, RANKING, _WORK, gpus=gpus, model=model), regions=(region,))
            (names[name],) = await run.submit([asked])
            await run.until_event("started", names[name])
        small = await _started(run, "small", 3, A100)
        await run.client.cancel(names["leaves"])
        await run.until_event("cancelled", names["leaves"])
        # 5 GPUs are idle in the east now and 3 in the west.
        (gang,) = await run.submit([one_job("gang", RANKING, _WORK, gpus=8, model=A100)])
        await run.until_event("started", gang)
        moved = [event for event in run.events if event.event == "evicting" and event.details["cause"] == "migrated"]
        assert [(event.workload, event.details["room_for"], event.region) for event in moved] == [(small, gang, EAST)]
        placed = [event.region for event in run.events if event.event == "dispatched" and event.workload == small]
        assert placed == [EAST, WEST]
        for workload in (gang, small, *(names[name] for name in sorted(names) if name != "leaves")):
            await run.client.cancel(workload)
        await run.follow()
        run.check()
        await run.check_nothing_is_left()

    rule = CompactionSection(enabled=True, checkpoint_within_s=1e6, between_regions=True)
    in_live_service(
        database_url, tmp_path, scenario, configuration=CONFIGURATION.model_copy(update={"compaction": rule})
    )


def test_room_is_made_for_a_gang_that_waits(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        leaving = [await _started(run, f"large-{number}", 5) for number in range(3)]
        small = [await _started(run, f"small-{number}", 3) for number in range(3)]
        for workload in leaving:
            await run.client.cancel(workload)
            await run.until_event("cancelled", workload)
        # 15 of 24 GPUs are idle now, 5 on each machine.
        (gang,) = await run.submit([one_job("gang", RANKING, _WORK, gpus=8, model=V100)])
        await run.until_event("started", gang)
        moved = [event for event in run.events if event.event == "evicting" and event.details["cause"] == "migrated"]
        assert [event.details["room_for"] for event in moved] == [gang]
        assert moved[0].workload in small
        for workload in (gang, *small):
            await run.client.cancel(workload)
        await run.follow()
        run.check()
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, configuration=_COMPACTING)
