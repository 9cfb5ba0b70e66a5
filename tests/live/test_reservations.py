"""Machines are kept for a gang that has waited for too long; the queue shows it, and others wait beside what is idle."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.identifiers import ANY_GPU_MODEL
from domain.resources import Quota
from domain.tenant import Tenant
from domain.workload import Emulated
from formats.scheduler_file import ReservationsSection
from tests.live.running import CONFIGURATION, LiveRun, in_live_service
from tests.live.world import RESEARCH, V100, one_job

pytestmark = pytest.mark.live

_TENANTS = (Tenant(RESEARCH, 3, Quota.of({ANY_GPU_MODEL: 64})),)
"""All are within its quota, so that nobody stands better."""
_WORK = Emulated(72_000.0, 60.0)
_KEEPING = CONFIGURATION.model_copy(
    update={"reservations": ReservationsSection(enabled=True, after_s=60.0, look_every_s=60.0)}
)


async def _started(run: LiveRun, name: str) -> str:
    (workload,) = await run.submit([one_job(name, RESEARCH, _WORK, gpus=8, model=V100)])
    await run.until_event("started", workload)
    return workload


def test_machines_are_kept_for_a_gang_that_has_waited_for_too_long(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        # All of the three machines of this model.
        first, second, third = [await _started(run, f"one-{number}") for number in range(3)]
        (gang,) = await run.submit([one_job("gang", RESEARCH, _WORK, gpus=8, tasks=3, model=V100)])
        reserved = await run.until_event("reserved", gang)
        (kept,) = (await run.client.queue()).reservations
        assert (kept.workload, kept.region, kept.clusters, len(kept.machines)) == (gang, "west", ("west-a",), 3)
        assert (kept.made_s, kept.expected_start_s) == (reserved.t, reserved.details["expected_start_s"])
        await run.client.cancel(first)
        await run.until_event("cancelled", first)
        # Another of the same standing that takes longer than until then does not get the idle machine.
        (late,) = await run.submit([one_job("late", RESEARCH, Emulated(1e6, 60.0), gpus=8, model=V100)])
        waits = await run.until_event("waiting", late)
        assert "machines that are kept for a gang that has waited for longer" in str(waits.details["reason"])
        for workload in (second, third):
            await run.client.cancel(workload)
        await run.until_event("started", gang)
        ended = await run.until_event("reservation_ended", gang)
        assert ended.details["reason"] == "started"
        assert not (await run.client.queue()).reservations
        await run.client.cancel(gang)
        await run.until_event("started", late)
        await run.client.cancel(late)
        await run.follow()
        run.check(tenants=_TENANTS)
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, tenants=_TENANTS, configuration=_KEEPING)
