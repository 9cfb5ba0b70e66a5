"""Machines are drained and undrained by hand, while things go wrong."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from domain.workload import Emulated
from tests.live.running import LiveRun, in_live_service
from tests.live.world import RANKING, V100, one_job
from topmast.v1 import regional_scheduler_pb2 as messages

pytestmark = pytest.mark.live

_LONG = Emulated(1e6, 60.0)
_MACHINE = "west-a-m0"


async def _until_it_runs(run: LiveRun) -> str:
    """A workload that takes a whole machine; all others of its kind are drained, so that it is _MACHINE."""
    async with run.regional("west") as scheduler:
        for number in (1, 2):
            await scheduler.DrainMachine(messages.DrainMachineRequest(machine=f"west-a-m{number}"))
    (workload,) = await run.submit([one_job("w", RANKING, _LONG, gpus=8, model=V100)])
    await run.until_event("started", workload)
    return workload


async def _state(run: LiveRun) -> str:
    async with run.regional("west") as scheduler:
        inventory = await scheduler.GetInventory(messages.GetInventoryRequest(cluster="west-a"), wait_for_ready=True)
    return next(machine.state for machine in inventory.machines if machine.machine == _MACHINE)


def test_what_was_allowed_to_stay_has_to_leave_when_it_is_drained_again(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _until_it_runs(run)
        async with run.regional("west") as scheduler:
            stays = await scheduler.DrainMachine(messages.DrainMachineRequest(machine=_MACHINE, keep_running=True))
            assert list(stays.evicting) == []
            assert await _state(run) == "draining"
            leaves = await scheduler.DrainMachine(messages.DrainMachineRequest(machine=_MACHINE))
            assert list(leaves.evicting) == [f"{workload}#1"]
            await run.until_event("evicted", workload)
            await run.until_event("waiting", workload)
            await scheduler.UndrainMachine(messages.UndrainMachineRequest(machine=_MACHINE))
        await run.until_event("started", workload)
        await run.client.cancel(workload)
        await run.follow()
        run.check()
        assert run.count("evicted", cause="drained") == 1

    in_live_service(database_url, tmp_path, scenario)


def test_a_drain_outlives_the_region_s_scheduler(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _until_it_runs(run)
        async with run.regional("west") as scheduler:
            await scheduler.DrainMachine(messages.DrainMachineRequest(machine=_MACHINE))
        # Whatever it had come to with the eviction: the next one goes on with it.
        await run.service.stop("regional/west")
        await run.service.start("regional/west")
        await run.until_event("evicted", workload)
        assert await _state(run) == "draining"
        await run.client.cancel(workload)
        await run.follow()
        run.check()

    in_live_service(database_url, tmp_path, scenario)


def test_a_machine_of_a_cluster_that_is_away_can_be_drained(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _until_it_runs(run)
        await run.service.stop("cluster/west-a")
        async with run.regional("west") as scheduler:
            drained = await scheduler.DrainMachine(messages.DrainMachineRequest(machine=_MACHINE))
            assert list(drained.evicting) == [f"{workload}#1"]
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await scheduler.DrainMachine(messages.DrainMachineRequest(machine="west-a-m9"))
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        # It is asked to stop as soon as there is a cluster manager to ask: it is taken up first, and keeps what it did.
        await run.service.start("cluster/west-a")
        evicted = await run.until_event("evicted", workload)
        assert evicted.details["progress"] == evicted.details["checkpoint_progress"]
        assert await _state(run) == "draining"
        await run.client.cancel(workload)
        await run.follow()
        run.check()

    in_live_service(database_url, tmp_path, scenario)
