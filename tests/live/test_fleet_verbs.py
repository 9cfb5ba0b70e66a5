"""What operators do with a fleet that works: drain by any name, with a deadline, wait, look, undrain; over restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Unpack

import pytest

from domain.workload import Emulated
from services.configuration import LeaseConfiguration
from tests.live.running import CONFIGURATION, PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import A100, RANKING, V100, one_job
from topmast import FleetMachine, InvalidArgumentError, NotFoundError, PreconditionError
from topmast.machines import MachineFilter

pytestmark = pytest.mark.live

_LONG = Emulated(1e6, 60.0)
_PATIENT = CONFIGURATION.model_copy(update={"lease": LeaseConfiguration(duration_real_s=30.0)})
_FAR_S = 1e7


async def _machines(run: LiveRun, **wanted: Unpack[MachineFilter]) -> dict[str, FleetMachine]:
    return {one.machine: one async for one in run.client.machines(**wanted)}


async def _running(run: LiveRun, name: str) -> tuple[str, str]:
    """A workload on a whole V100 machine, and that machine."""
    (workload,) = await run.submit([one_job(name, RANKING, _LONG, gpus=8, model=V100)])
    await run.until_event("started", workload)
    (machine,) = [one.machine for one in (await _machines(run, cluster="west-a")).values() if _is_on(one, workload)]
    return workload, machine


def _is_on(machine: FleetMachine, workload: str) -> bool:
    return workload in {holder.workload for holder in machine.holders}


def test_a_drain_with_a_deadline_lets_work_stay_until_then_and_lasts_over_a_restart(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(run: LiveRun) -> None:
        workload, name = await _running(run, "stays")
        drained = await run.client.drain(name, reason="new firmware", within_s=_FAR_S)
        assert (drained.machines, drained.evicting) == (1, ())
        assert [(scope.kind, scope.region) for scope in drained.scopes] == [("machine", "west")]
        await run.service.stop("regional/west")
        await run.service.start("regional/west")
        async with run.regional("west"):
            machine = (await _machines(run, machine=name))[name]
        assert (machine.state, machine.gpus_in_use) == ("draining", 8)
        assert machine.drain is not None
        assert (machine.drain.reason, machine.drain.deadline_s) == ("new firmware", drained.deadline_s)
        assert run.count("evicting") == 0

        # The same machine with another deadline, which has come: what is there leaves, with its work saved.
        now_s = (await run.client.status()).now_s
        await run.client.drain(name, reason="now", within_s=60.0)
        evicted = await run.until_event("evicted", workload)
        assert evicted.t >= now_s + 60.0
        assert evicted.details["cause"] == "drained"
        draining = next(event for event in run.events if event.event == "machine_draining")
        assert draining.details == {"machine": name, "reason": "new firmware", "deadline_s": drained.deadline_s}
        await run.until_event("started", workload)
        assert not (await _machines(run, machine=name))[name].holders

        # Idempotent, also undone twice; a drain that is undone before its deadline evicts nothing.
        assert (await run.client.drain(name)).evicting == ()
        assert (await run.client.undrain(name)).machines == 1
        assert (await run.client.undrain(name)).machines == 0
        assert (await _machines(run, machine=name))[name].drain is None
        await run.client.cancel(workload)
        await run.follow()
        run.check()

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)


def test_clusters_racks_and_regions_are_drained_whole_and_shown_so(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload, _ = await _running(run, "leaves")
        west = {one.cluster: one for one in await run.client.fleet(region="west")}
        assert (west["west-a"].gpus, west["west-a"].gpus_in_use, west["west-a"].gpus_free) == (24, 8, 16)
        assert west["west-a"].alive
        drained = await run.client.drain(["west-a", "west-b"], reason="moving house")
        assert (drained.machines, drained.evicting_count) == (5, 1)
        await run.until_event("evicted", workload)
        (model,) = await run.client.fleet(cluster="west-a")
        assert (model.gpus_in_use, model.gpus_free, model.gpus_draining, model.machines_up) == (0, 0, 24, 0)
        assert {one.state for one in (await _machines(run, region="west")).values()} == {"draining"}
        assert (await run.client.drain("west")).evicting_count == 0
        assert (await run.client.undrain("west/west-b-r0")).machines == 2
        assert (await run.client.undrain("west", kind="region")).machines == 3
        await run.until_event("started", workload)

        for wrong, error, words in (
            ("west-c", NotFoundError, "the fleet has the regions east, west"),
            ("east/west-a", NotFoundError, "east/west-a"),
        ):
            with pytest.raises(error, match=words):
                await run.client.drain(["east-a", wrong])
        assert {one.state for one in (await _machines(run, cluster="east-a")).values()} == {"up"}, "all or nothing"
        with pytest.raises(InvalidArgumentError, match="give one of them"):
            await run.client.drain("west", within_s=1.0, deadline_s=1.0)
        with pytest.raises(NotFoundError, match="the fleet has east, west"):
            await run.client.fleet(region="mars")
        with pytest.raises(NotFoundError, match="GPU model 'H100'; region east has A100"):
            await _machines(run, region="east", gpu_model="H100")
        await run.client.cancel(workload)
        await run.follow()
        run.check()

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)


def test_pages_tenants_and_usage_add_up(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        one_after_the_other = []
        token = ""
        while True:
            page = await run.client.machines_page(page_size=5, page_token=token)
            one_after_the_other += [machine.machine for machine in page.machines]
            token = page.next_page_token
            if not token:
                break
        assert one_after_the_other == sorted(one_after_the_other)
        assert len(set(one_after_the_other)) == 12

        within, _ = await _running(run, "within")
        beyond, _ = await _running(run, "beyond")  # Of V100 the tenant has 8, by its bucket "any".
        (short,) = await run.submit([one_job("short", RANKING, Emulated(600.0), gpus=4, model=A100)])
        await run.until_event("completed", short)
        (tenant,) = [one async for one in run.client.tenants(tenant="ranking")]
        quotas = {quota.resource: quota for quota in tenant.quotas}
        assert (quotas["A100"].quota, quotas["A100"].used) == (24, 0)
        assert (quotas["any"].quota, quotas["any"].used, quotas["any"].borrowed) == (8, 8, 8)
        assert (tenant.gpus_in_use, tenant.live_attempts, tenant.queued) == (16, 2, 0)
        assert tenant.credit < 6.0, "it has used more than nothing"
        # What waits has the credit of its tenant, and what its waiting adds: an hour is worth 1.
        (waits,) = await run.submit([one_job("waits", RANKING, _LONG, gpus=8, tasks=3, model=V100)])
        await run.until_event("waiting", waits)
        position = (await run.client.get(waits)).queue_position
        (tenant,) = [one async for one in run.client.tenants(tenant="ranking")]
        assert position is not None
        assert position.credit == pytest.approx(tenant.credit, abs=0.3)
        assert (tenant.queued, tenant.queued_over_quota) == (1, 1)
        assert {quota.resource: quota.queued for quota in tenant.quotas}["any"] == 24
        await run.client.cancel(waits)
        with pytest.raises(NotFoundError, match="playground, ranking, research, vision"):
            assert [one async for one in run.client.tenants(tenant="nobody")]

        for workload in (within, beyond):
            await run.client.cancel(workload)
        await run.follow()
        by_workload = {
            (row.workload, row.gpu_model): row.gpu_hours async for row in run.client.usage(by=["workload", "gpu_model"])
        }
        lives = {name: [e.t for e in run.events if e.workload == name] for name in (short, within, beyond)}
        dispatched = {e.workload: e.t for e in run.events if e.event == "dispatched"}
        for name, model, gpus in ((short, "A100", 4), (within, "V100", 8), (beyond, "V100", 8)):
            expected = gpus * (max(lives[name]) - dispatched[name]) / 3_600.0
            assert by_workload[name, model] == pytest.approx(expected, rel=0.02)
        total = sum(by_workload.values())
        async with asyncio.timeout(PATIENCE_REAL_S):
            (row,) = [one async for one in run.client.usage(tenant="ranking")]
        assert (row.tenant, row.workload, row.period_start_s) == ("ranking", "", None)
        assert row.gpu_hours == pytest.approx(total)
        page_of_use = await run.client.usage_page(by=["workload"], page_size=2)
        rest = await run.client.usage_page(by=["workload"], page_size=2, page_token=page_of_use.next_page_token)
        assert sorted(one.workload for one in (*page_of_use.rows, *rest.rows)) == sorted(lives)
        with pytest.raises(InvalidArgumentError, match="must be one of period, tenant, workload, gpu_model"):
            await run.client.usage_page(by=["colour"])

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)


def test_a_name_of_several_things_is_refused_with_all_of_them(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        async with run.database.transaction() as connection:
            await connection.execute("UPDATE machines SET rack = 'r0' WHERE rack IN ('east-a-r0', 'west-a-r0')")
        with pytest.raises(PreconditionError, match="r0 is 2 things: rack east/r0, rack west/r0"):
            await run.client.drain("r0")
        assert (await run.client.drain("west/r0", within_s=_FAR_S)).machines == 3
        assert (await run.client.undrain("west/r0")).machines == 3

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)
