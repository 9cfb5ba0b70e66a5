"""Machines, tenants and tables come and go while regions work: no session ends, and what runs does not notice."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc
import numpy as np
import pytest

from domain.fleet import Cluster, Fleet, Rack, Region
from domain.identifiers import GpuModel, MachineId, RackId, TenantId
from domain.resources import Quota
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import Emulated, TableInput
from services.configuration import LeaseConfiguration
from services.database import lease_store
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from tests.live.running import CONFIGURATION, PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import (
    A100,
    EAST,
    FLEET,
    IMAGES,
    RANKING,
    SPEECH,
    TABLES,
    TENANTS,
    V100,
    WEST,
    gpu_cluster,
    one_job,
    workloads,
)
from topmast import InvalidArgumentError, PreconditionError
from topmast.v1 import regional_scheduler_pb2 as messages

pytestmark = pytest.mark.live

_LONG = Emulated(1e6, 60.0)
_PATIENT = CONFIGURATION.model_copy(update={"lease": LeaseConfiguration(duration_real_s=30.0)})
"""A lease must not end because the machine is busy: then a session would end with it."""
_H100 = GpuModel("H100")
_NEWCOMERS = Tenant(TenantId("newcomers"), 1, Quota.of({GpuModel("any"): 8}))


def _with(fleet: Fleet, extra: Cluster, region: int = 1) -> Fleet:
    """With another cluster in the region, or with another one in place of the one of that name."""
    regions = list(fleet.regions)
    others = [cluster for cluster in regions[region].clusters if cluster.cluster != extra.cluster]
    if len(others) == len(regions[region].clusters):
        clusters = (*others, extra)
    else:
        clusters = tuple(extra if c.cluster == extra.cluster else c for c in regions[region].clusters)
    regions[region] = Region(regions[region].region, tuple(clusters))
    return Fleet(tuple(regions))


LARGER = _with(FLEET, gpu_cluster("west-a", V100, 6))
"""With three more machines in the west."""


async def _apply(run: LiveRun, fleet: Fleet, tables: tuple[Table, ...] = TABLES) -> None:
    await run.client.apply_fleet(fleet_to_proto(fleet, tables))


async def _sessions(run: LiveRun) -> dict[str, int]:
    """The token of every lease but the global scheduler's: a new session has another one."""
    leases = await run.database.run(lease_store.list_leases)
    return {lease.name: lease.token for lease in leases if lease.name != "global"}


async def _until_machines_of_west(run: LiveRun, count: int) -> list[messages.MachineInventory]:
    async with asyncio.timeout(PATIENCE_REAL_S), run.regional("west") as scheduler:
        while True:
            machines = (await scheduler.GetInventory(messages.GetInventoryRequest())).machines
            if len(machines) == count:
                return list(machines)


def test_a_machine_that_is_added_takes_work_and_nothing_else_changes(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        running = await run.submit([one_job(f"r{n}", RANKING, _LONG, gpus=8, model=V100) for n in range(3)])
        for workload in running:
            await run.until_event("started", workload)
        waiting = one_job("waits", RANKING, Emulated(60.0), gpus=8, model=V100)
        (workload,) = await run.submit([waiting])
        await run.until_event("waiting", workload)
        before = await _sessions(run)
        await _apply(run, LARGER)
        started = await run.until_event("dispatched", workload)
        placement = started.details["placement"]
        assert isinstance(placement, list)
        assert isinstance(placement[0], dict)
        assert placement[0]["machine"] in {"west-a-m3", "west-a-m4", "west-a-m5"}
        await run.until_event("completed", workload)
        assert await _sessions(run) == before
        assert run.count("evicting") == 0
        for running_one in running:
            assert (await run.client.get(running_one)).state == "RUNNING"
            await run.client.cancel(running_one)
        await run.follow()
        run.check(LARGER)
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)


def test_what_no_region_could_ever_host_is_taken_once_there_are_machines_for_it(
    database_url: str, tmp_path: Path
) -> None:
    wanted = one_job("w", RANKING, Emulated(60.0), gpus=8, model=_H100)

    async def scenario(run: LiveRun) -> None:
        with pytest.raises(InvalidArgumentError, match="H100"):
            await run.submit([wanted])
        gang = one_job("gang", RANKING, Emulated(60.0), gpus=8, tasks=6, model=V100)
        with pytest.raises(PreconditionError, match="6 tasks"):
            await run.submit([gang])
        before = await _sessions(run)
        await _apply(run, LARGER)
        (workload,) = await run.submit([gang])
        await run.until_event("completed", workload)
        # A cluster that is new altogether; its manager is started by what starts tiers.
        larger = _with(LARGER, gpu_cluster("west-c", _H100, 1))
        await _apply(run, larger)
        run.service.fleet = larger
        await run.service.start("cluster/west-c")
        (workload,) = await run.submit([wanted])
        await run.until_event("completed", workload)
        after = await _sessions(run)
        assert {name: after[name] for name in before} == before
        run.check(larger)

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)


def test_tenants_come_and_change_as_a_region_works(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        (running,) = await run.submit([one_job("r", RANKING, _LONG, gpus=8)])
        await run.until_event("started", running)
        before = await _sessions(run)
        # Other buckets: what runs is charged to them from now on.
        changed = tuple(
            replace(tenant, quota=Quota.of({GpuModel("any"): 40})) if tenant.tenant == RANKING else tenant
            for tenant in TENANTS
        )
        all_tenants = (*changed, _NEWCOMERS)
        await run.client.apply_tenants([tenant_to_proto(tenant) for tenant in all_tenants])
        (workload,) = await run.submit([one_job("new", _NEWCOMERS.tenant, Emulated(60.0), gpus=8)])
        await run.until_event("completed", workload)
        await run.client.cancel(running)
        await run.follow()
        assert await _sessions(run) == before
        run.check(tenants=all_tenants)
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)


def test_a_workload_that_awaits_data_starts_when_a_table_comes(database_url: str, tmp_path: Path) -> None:
    wanted = replace(
        one_job("no-data", RANKING, Emulated(60.0), gpus=1), tables=(TableInput(SPEECH), TableInput(IMAGES))
    )
    tables = tuple(replace(table, replicas=(WEST,)) if table.table == SPEECH else table for table in TABLES)

    async def scenario(run: LiveRun) -> None:
        (workload,) = await run.submit([wanted])
        await run.until_event("awaiting_data", workload)
        before = await _sessions(run)
        await _apply(run, FLEET, tables)
        started = await run.until_event("dispatched", workload)
        assert started.region == WEST
        await run.follow()
        assert await _sessions(run) == before
        run.check(tables=tables)

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)


def test_an_idle_machine_goes_and_one_in_use_stays(database_url: str, tmp_path: Path) -> None:
    smaller = _with(FLEET, gpu_cluster("west-a", V100, 2))

    async def scenario(run: LiveRun) -> None:
        running = await run.submit([one_job(f"r{n}", RANKING, _LONG, gpus=8, model=V100) for n in range(3)])
        placed = {}
        for workload in running:
            dispatched = await run.until_event("dispatched", workload)
            placement = dispatched.details["placement"]
            assert isinstance(placement, list)
            assert isinstance(placement[0], dict)
            placed[placement[0]["machine"]] = workload
        before = await _sessions(run)
        with pytest.raises(PreconditionError, match=r"west-a-m2 .*topmast drain west-a-m2 --wait"):
            await _apply(run, smaller)
        await run.client.cancel(placed["west-a-m2"])
        await run.until_event("cancelled", placed["west-a-m2"])
        await _apply(run, smaller)
        machines = await _until_machines_of_west(run, 4)
        assert "west-a-m2" not in {machine.machine for machine in machines}
        async with run.regional("west") as scheduler:
            with pytest.raises(grpc.aio.AioRpcError, match="west-a-m2"):
                await scheduler.DrainMachine(messages.DrainMachineRequest(machine="west-a-m2"))
        (late,) = await run.submit([one_job("late", RANKING, Emulated(60.0), gpus=8, model=V100)])
        await run.until_event("waiting", late)
        await run.client.cancel(placed["west-a-m0"])
        await run.until_event("completed", late)
        await run.client.cancel(placed["west-a-m1"])
        await run.follow()
        assert await _sessions(run) == before
        run.check()

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)


def test_a_cluster_that_moves_to_another_region_restarts_both_sessions(database_url: str, tmp_path: Path) -> None:
    """Its manager must learn whose orders count: both regions get new tokens."""
    east, west = FLEET.regions
    moved = Fleet((Region(EAST, (*east.clusters, west.clusters[1])), Region(WEST, west.clusters[:1])))
    wanted = replace(one_job("w", RANKING, Emulated(60.0), gpus=8, model=A100), regions=(EAST,))

    async def scenario(run: LiveRun) -> None:
        before = await _sessions(run)
        await _apply(run, moved)
        await run.submit([replace(wanted, name=f"w{number}") for number in range(6)])
        await run.follow()
        after = await _sessions(run)
        assert after["regional/east"] > before["regional/east"]
        assert after["regional/west"] > before["regional/west"]
        run.check(moved)

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)


def test_changes_in_the_middle_of_everything(database_url: str, tmp_path: Path, generator: np.random.Generator) -> None:
    """Machines, racks and tenants change again and again while a crowd is auctioned, evicted and started."""
    west_a = LARGER.regions[1].clusters[0]
    extra = Rack(RackId("extra"), (replace(next(west_a.machines()), machine=MachineId("west-a-extra")),))
    largest = _with(FLEET, replace(west_a, racks=(*west_a.racks, extra)))
    all_tenants = (*TENANTS, _NEWCOMERS)

    async def change(run: LiveRun, stop: asyncio.Event) -> None:
        for fleet in (LARGER, largest, FLEET) * 6:
            if stop.is_set():
                return
            # While something runs on a machine that would go it is refused, and nothing changes.
            with suppress(PreconditionError):
                await _apply(run, fleet)
            await run.client.apply_tenants([tenant_to_proto(tenant) for tenant in all_tenants])
            await run.client.apply_tenants([tenant_to_proto(tenant) for tenant in TENANTS])

    async def scenario(run: LiveRun) -> None:
        before = await _sessions(run)
        stop = asyncio.Event()
        changing = asyncio.ensure_future(change(run, stop))
        mix = workloads(60, generator)
        for first in range(0, len(mix), 10):
            await run.submit(mix[first : first + 10])
        await run.follow()
        stop.set()
        await changing
        assert await _sessions(run) == before
        run.check(largest, all_tenants)
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario, configuration=_PATIENT)
