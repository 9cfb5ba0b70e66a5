"""Machines change their cluster while the service runs: drained, emptied, moved; sessions and other work go on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from domain.capacity_requests import CapacityRequest, ClusterRequests
from domain.fleet import Fleet, Region
from domain.identifiers import ClusterId, MachineId
from domain.machine_moves import MachineMovement
from domain.workload import Emulated
from services.configuration import ClustersConfiguration
from services.database import lease_store, machine_move_store
from services.wire.fleets import fleet_to_proto
from tests.live.running import CONFIGURATION, PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import A100, EAST, RANKING, VISION, cpu_cluster, gpu_cluster, one_job
from topmast.v1 import regional_scheduler_pb2 as messages

pytestmark = pytest.mark.live

_LONG = Emulated(1e6, 60.0)
_FLEET = Fleet(
    (Region(EAST, (gpu_cluster("east-a", A100, 4), gpu_cluster("east-b", A100, 1), cpu_cluster("east-c", 1))),)
)
_AT_ONCE = CONFIGURATION.model_copy(update={"clusters": ClustersConfiguration(drain_s=0.0, time_limit_real_s=5.0)})
_PATIENTLY = CONFIGURATION.model_copy(update={"clusters": ClustersConfiguration(drain_s=1e8, time_limit_real_s=5.0)})


def _asked(**machines: int) -> tuple[ClusterRequests, ...]:
    """So many A100 machines for east_a, east_b."""
    clusters = {ClusterId(name.replace("_", "-")): count for name, count in machines.items()}
    return tuple(
        [
            ClusterRequests(name, (CapacityRequest(name, A100, count),) if count else ())
            for name, count in clusters.items()
        ]
    )


async def _apply(run: LiveRun, **machines: int) -> None:
    await run.database.run(
        partial(machine_move_store.store_requests, region=EAST, requests=_asked(**machines), now=1.0)
    )


async def _clusters(run: LiveRun) -> dict[str, tuple[str, str]]:
    """The cluster and the state of each machine with GPUs, as the region's memory says."""
    async with run.regional("east") as scheduler:
        inventory = await scheduler.GetInventory(messages.GetInventoryRequest(), wait_for_ready=True)
    return {one.machine: (one.cluster, one.state) for one in inventory.machines if one.gpus}


async def _until_in_b(run: LiveRun, count: int) -> list[str]:
    """The machines of east-b, as soon as so many of them take work."""
    async with asyncio.timeout(PATIENCE_REAL_S):
        while True:
            found = [name for name, place in (await _clusters(run)).items() if place == ("east-b", "up")]
            if len(found) == count:
                return sorted(found)
            await asyncio.sleep(0.1)


async def _until_started(run: LiveRun, count: int) -> None:
    if run.count("started") < count:
        await run.follow(until=lambda event: run.count("started") == count)


async def _moves(run: LiveRun) -> dict[MachineId, MachineMovement]:
    return await run.database.run(partial(machine_move_store.load_moves, region=EAST))


async def _tokens(run: LiveRun) -> dict[str, int]:
    leases = await run.database.run(lease_store.list_leases)
    return {lease.name: lease.token for lease in leases if lease.name != "global"}


def test_idle_machines_move_at_once_and_are_used_where_they_are(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        (stays,) = await run.submit([one_job("stays", RANKING, _LONG, gpus=8, model=A100)])
        await run.until_event("started", stays)
        tokens = await _tokens(run)
        await _apply(run, east_a=1, east_b=4)
        await _until_in_b(run, 4)
        (gang,) = await run.submit([one_job("gang", VISION, Emulated(60.0), gpus=8, tasks=2, model=A100)])
        await run.until_event("completed", gang)
        assert await _tokens(run) == tokens, "no session has ended"
        await run.client.cancel(stays)
        await run.follow()
        report = run.check(_FLEET)
        assert report.events_by_kind["machine_moved"] == 3
        assert report.events_by_kind.get("evicted", 0) == 0
        assert await _moves(run) == {}

    in_live_service(database_url, tmp_path, scenario, fleet=_FLEET, configuration=_AT_ONCE)


def test_what_runs_on_a_machine_that_moves_migrates_or_is_evicted(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        names = await run.submit(
            [one_job(f"w{number}", (RANKING, VISION)[number % 2], _LONG, gpus=8, model=A100) for number in range(4)]
        )
        await _until_started(run, len(names))
        # One machine is free; two of four machines of east-a have to go, wherever that is.
        await _apply(run, east_a=2, east_b=3)
        machines = await _until_in_b(run, 3)
        assert len(machines) == 3
        for name in names:
            await run.client.cancel(name)
        await run.follow()
        report = run.check(_FLEET)
        assert report.events_by_kind["machine_moved"] == 2
        causes = [event.details["cause"] for event in run.events if event.event == "evicted"]
        assert set(causes) <= {"migrated", "drained", "cancelled"}
        assert "migrated" in causes or "drained" in causes

    in_live_service(database_url, tmp_path, scenario, fleet=_FLEET, configuration=_AT_ONCE)


def test_a_move_outlives_the_region_s_scheduler_and_waits_for_its_deadline(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        names = await run.submit(
            [one_job(f"w{number}", (RANKING, VISION)[number % 2], _LONG, gpus=8, model=A100) for number in range(5)]
        )
        await _until_started(run, len(names))
        await _apply(run, east_a=3, east_b=2)
        drained = await run.follow(until=lambda event: event.event == "machine_draining")
        machine = drained.details["machine"]
        await run.service.stop("regional/east")
        await run.service.start("regional/east")
        under_way = await _moves(run)
        assert [move.to_cluster for move in under_way.values()] == ["east-b"]
        async with run.regional("east") as scheduler:
            inventory = await scheduler.GetInventory(messages.GetInventoryRequest(), wait_for_ready=True)
        (work,) = (list(one.attempts) for one in inventory.machines if one.machine == machine)
        await run.client.cancel(work[0].split("#")[0])
        assert machine in await _until_in_b(run, 2)
        for name in names:
            if name != work[0].split("#")[0]:
                await run.client.cancel(name)
        await run.follow()
        report = run.check(_FLEET)
        assert report.events_by_kind["machine_moved"] == 1

    in_live_service(database_url, tmp_path, scenario, fleet=_FLEET, configuration=_PATIENTLY)


def test_an_operator_who_drains_a_machine_in_mid_move_keeps_it_where_it_is(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        names = await run.submit(
            [one_job(f"w{number}", (RANKING, VISION)[number % 2], _LONG, gpus=8, model=A100) for number in range(5)]
        )
        await _until_started(run, len(names))
        await _apply(run, east_a=3, east_b=2)
        drained = await run.follow(until=lambda event: event.event == "machine_draining")
        machine = str(drained.details["machine"])
        async with run.regional("east") as scheduler:
            await scheduler.UndrainMachine(messages.UndrainMachineRequest(machine=machine))
        assert MachineId(machine) not in await _moves(run)
        assert (await _clusters(run))[machine] == ("east-a", "up")
        for name in names:
            await run.client.cancel(name)
        await run.follow()
        run.check(_FLEET)

    in_live_service(database_url, tmp_path, scenario, fleet=_FLEET, configuration=_PATIENTLY)


def test_a_hundred_of_a_thousand_machines_move_beside_what_runs(database_url: str, tmp_path: Path) -> None:
    fleet = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 700), gpu_cluster("east-b", A100, 300))),))

    async def scenario(run: LiveRun) -> None:
        names = await run.submit(
            [one_job(f"w{number}", (RANKING, VISION)[number % 2], _LONG, gpus=2, model=A100) for number in range(20)]
        )
        await _until_started(run, len(names))
        tokens = await _tokens(run)
        await _apply(run, east_a=600, east_b=400)
        await _until_in_b(run, 400)
        (late,) = await run.submit([one_job("late", RANKING, Emulated(60.0), gpus=1, model=A100)])
        await run.until_event("completed", late)
        assert await _tokens(run) == tokens, "no session has ended"
        for name in names:
            await run.client.cancel(name)
        await run.follow()
        report = run.check(fleet)
        assert report.events_by_kind["machine_moved"] == 100
        assert report.events_by_kind.get("evicting", 0) <= len(names), "idle machines were enough"
        assert all(event.details["cause"] == "cancelled" for event in run.events if event.event == "evicted")

    in_live_service(database_url, tmp_path, scenario, fleet=fleet, configuration=_AT_ONCE)


async def _until_at_rest(run: LiveRun) -> None:
    """Until no machine is on its way, and all take work."""
    async with asyncio.timeout(PATIENCE_REAL_S):
        while True:
            run.service.raise_if_broken()
            if not await _moves(run) and {state for _, state in (await _clusters(run)).values()} == {"up"}:
                return
            await asyncio.sleep(0.1)


async def _work_everywhere(run: LiveRun) -> list[str]:
    """A workload on each machine with GPUs, which stays until it is cancelled."""
    names = await run.submit(
        [one_job(f"w{number}", (RANKING, VISION)[number % 2], _LONG, gpus=8, model=A100) for number in range(5)]
    )
    await _until_started(run, len(names))
    return names


async def _end_all(run: LiveRun, names: list[str]) -> None:
    for name in names:
        await run.client.cancel(name)
    await run.follow()


def test_what_is_asked_last_counts_when_machines_are_on_their_way_already(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        names = await _work_everywhere(run)
        await _apply(run, east_a=1, east_b=4)
        await run.follow(until=lambda event: event.event == "machine_draining")
        await _apply(run, east_a=4, east_b=1)
        await _until_at_rest(run)
        assert sorted(cluster for cluster, _ in (await _clusters(run)).values()) == ["east-a"] * 4 + ["east-b"]
        await _apply(run, east_a=2, east_b=3)
        await _apply(run, east_a=3, east_b=2)
        await _end_all(run, names)
        assert len(await _until_in_b(run, 2)) == 2
        await _until_at_rest(run)
        run.check(_FLEET)

    in_live_service(database_url, tmp_path, scenario, fleet=_FLEET, configuration=_PATIENTLY)


def test_a_cluster_that_leaves_the_fleet_gets_no_machine_any_more(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        names = await _work_everywhere(run)
        await _apply(run, east_a=1, east_b=4)
        await run.follow(until=lambda event: event.event == "machine_draining")
        # What works in b goes, and with it b.
        clusters = _FLEET.regions[0].clusters
        (work,) = await _attempts_in(run, "east-b")
        await run.client.cancel(work)
        async with asyncio.timeout(PATIENCE_REAL_S):
            while True:
                if not await _attempts_in(run, "east-b"):
                    break
                await asyncio.sleep(0.05)
        moved = [name for name, (cluster, _) in (await _clusters(run)).items() if cluster == "east-b"]
        assert moved == ["east-b-m0"], "all others wait for what runs on them"
        await run.client.apply_fleet(fleet_to_proto(Fleet((replace(_FLEET.regions[0], clusters=clusters[::2]),)), ()))
        await _until_at_rest(run)
        assert {cluster for cluster, _ in (await _clusters(run)).values()} == {"east-a"}
        await _end_all(run, [name for name in names if name != work])
        assert run.count("machine_moved") == 0

    in_live_service(database_url, tmp_path, scenario, fleet=_FLEET, configuration=_PATIENTLY)


async def _attempts_in(run: LiveRun, cluster: str) -> list[str]:
    """The workloads that hold anything there."""
    async with run.regional("east") as scheduler:
        inventory = await scheduler.GetInventory(messages.GetInventoryRequest(), wait_for_ready=True)
    return [work.split("#")[0] for one in inventory.machines if one.cluster == cluster for work in one.attempts]
