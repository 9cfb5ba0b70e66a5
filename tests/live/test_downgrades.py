"""Running work loses cells and gets them back in a running service: it goes on, it is written down, and the log says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from domain.tenant import Tenant
from domain.workload import Emulated
from services.wire.fleets import tenant_to_proto
from tests.live.running import LiveRun, in_live_service
from tests.live.test_virtual_clusters import cells_of, fleet, owning
from tests.live.world import A100, RANKING, one_job

pytestmark = pytest.mark.live

_LONG = Emulated(1e6, 60.0)


async def apply(run: LiveRun, tenants: tuple[Tenant, ...]) -> None:
    await run.client.apply_tenants([tenant_to_proto(tenant) for tenant in tenants])


async def downgraded(run: LiveRun) -> list[object]:
    return [document["downgraded"] for *_, document in await cells_of(run) if isinstance(document, dict)]


def test_work_whose_cells_are_taken_away_goes_on_and_gets_them_back(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        (gang,) = await run.submit([one_job("gang", RANKING, _LONG, gpus=8, tasks=2, model=A100)])
        await run.until_event("started", gang)
        await apply(run, owning(ranking=1))
        lost = await run.until_event("downgraded", gang)
        assert (lost.attempt, lost.details["jobs"]) == (1, ["main"])
        assert await downgraded(run) == [True]
        await run.service.stop("regional/east")
        await run.service.start("regional/east")
        await run.service.wait_until_held(run.database)
        assert await downgraded(run) == [True]
        await apply(run, owning(ranking=2))
        back = await run.until_event("restored", gang)
        assert (back.attempt, back.details["jobs"]) == (1, ["main"])
        assert await downgraded(run) == [False]
        assert run.count("evicting") == 0
        assert (await run.client.get(gang)).state == "RUNNING"
        await run.client.cancel(gang)
        await run.follow()
        run.check(fleet(), owning())
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, fleet=fleet(), tenants=owning())
