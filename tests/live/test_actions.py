"""Running attempts are resized, retuned and migrated: by emulated execution, on a compressed clock."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from domain.fleet import Fleet
from domain.identifiers import JobName
from domain.placement import AttemptKey, TaskPlacement
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from services.cluster_manager import tier
from services.execution.emulated_executor import EmulatedExecutor
from services.execution.executor import ImpossibleOrder
from services.wire.fleets import fleet_to_proto
from tests.live.running import PATIENCE_REAL_S, LiveRun, in_live_service
from tests.live.world import A100, FLEET, RANKING, V100, gpu_cluster, one_job
from topmast import Event, PreconditionError
from topmast.v1 import regional_scheduler_pb2 as messages
from topmast.v1 import regional_scheduler_pb2_grpc

pytestmark = pytest.mark.live

_WORK = Emulated(36_000.0, 60.0)
"""A minute of real time at the speed of these tests: nothing ends by itself while it is changed."""


def _elastic(tasks: int = 1, max_tasks: int = 4) -> WorkloadSpecification:
    resources = TaskResources(gpus=2, gpu_model=V100)
    job = JobSpecification(JobName("main"), tasks, resources, _WORK, max_tasks=max_tasks)
    return WorkloadSpecification("elastic", RANKING, (job,))


async def _started(run: LiveRun, specification: WorkloadSpecification) -> str:
    (workload,) = await run.submit([specification])
    await run.until_event("started", workload)
    return workload


async def _ended(run: LiveRun, workload: str) -> None:
    await run.client.cancel(workload)
    await run.follow()
    run.check()
    await run.check_nothing_is_left()


async def _until_ready(scheduler: regional_scheduler_pb2_grpc.RegionalSchedulerAsyncStub) -> None:
    """Waits until the region's scheduler has a session."""
    async with asyncio.timeout(PATIENCE_REAL_S):
        while True:
            try:
                await scheduler.GetInventory(messages.GetInventoryRequest())
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                await asyncio.sleep(0.05)
            else:
                return


def _machines(event: Event) -> set[str]:
    placement = event.details["placement"]
    assert isinstance(placement, list)
    return {str(entry["machine"]) for entry in placement if isinstance(entry, dict)}


def _tasks(event: Event) -> list[int]:
    placement = event.details["placement"]
    assert isinstance(placement, list)
    return [int(str(entry["task"])) for entry in placement if isinstance(entry, dict)]


def test_an_elastic_workload_grows_and_shrinks(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _started(run, _elastic())
        async with run.regional("west") as scheduler:
            grown = await scheduler.ResizeWorkload(
                messages.ResizeWorkloadRequest(workload=workload, job="main", tasks=4)
            )
            assert grown.changes
            assert len(grown.placements) == 4
            resized = await run.until_event("resized", workload)
            assert (_tasks(resized), resized.details["speed"]) == ([0, 1, 2, 3], 4.0)
            again = await scheduler.ResizeWorkload(
                messages.ResizeWorkloadRequest(workload=workload, job="main", tasks=4)
            )
            assert not again.changes
            await scheduler.ResizeWorkload(messages.ResizeWorkloadRequest(workload=workload, job="main", tasks=2))
            resized = await run.until_event("resized", workload)
            assert (_tasks(resized), resized.details["speed"]) == ([0, 1], 2.0)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await scheduler.ResizeWorkload(messages.ResizeWorkloadRequest(workload=workload, job="main", tasks=5))
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert refused.value.details() == "job main may have 1 to 4 tasks, not 5"
        await _ended(run, workload)

    in_live_service(database_url, tmp_path, scenario)


class _RefusesTheFirstChange(EmulatedExecutor):
    """No region asks for what is impossible: a cluster that refuses has to be made."""

    async def resize(
        self, key: AttemptKey, placements: tuple[TaskPlacement, ...], revision: int, work_rate: float = 1.0
    ) -> None:
        if revision == 1:
            raise ImpossibleOrder(key, "its tasks do not like that")
        await super().resize(key, placements, revision, work_rate)


def test_a_change_that_a_cluster_refuses_is_undone_and_the_next_one_carried_out(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "EmulatedExecutor", _RefusesTheFirstChange)

    async def scenario(run: LiveRun) -> None:
        workload = await _started(run, _elastic())
        async with run.regional("west") as scheduler:
            await scheduler.ResizeWorkload(messages.ResizeWorkloadRequest(workload=workload, job="main", tasks=4))
            refused = await run.until_event("change_refused", workload)
            assert refused.cluster == "west-a"
            assert (refused.details["change"], refused.attempt) == ("resized", 1)
            assert "its tasks do not like that" in str(refused.details["reason"])
            resized = await run.until_event("resized", workload)
            assert (_tasks(resized), resized.details["speed"]) == ([0], 1.0)
            inventory = await scheduler.GetInventory(messages.GetInventoryRequest(cluster="west-a"))
            assert sum(machine.gpus - machine.free_gpus for machine in inventory.machines) == 2
            await scheduler.ResizeWorkload(messages.ResizeWorkloadRequest(workload=workload, job="main", tasks=2))
            resized = await run.until_event("resized", workload)
            assert (_tasks(resized), resized.details["speed"]) == ([0, 1], 2.0)
        await _ended(run, workload)

    in_live_service(database_url, tmp_path, scenario)


def test_a_change_outlives_region_and_cluster_manager(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _started(run, _elastic())
        await run.service.stop("cluster/west-a")
        async with run.regional("west") as scheduler:
            await scheduler.ResizeWorkload(messages.ResizeWorkloadRequest(workload=workload, job="main", tasks=3))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await scheduler.ResizeWorkload(messages.ResizeWorkloadRequest(workload=workload, job="main", tasks=2))
            assert str(refused.value.details()).startswith(f"the last change of {workload} is not carried out yet; try")
        # Decided and stored, and no cluster manager was there to be asked: the next ones go on with it.
        await run.service.stop("regional/west")
        await run.service.start("regional/west")
        assert run.count("resized") == 0
        await run.service.start("cluster/west-a")
        resized = await run.until_event("resized", workload)
        assert _tasks(resized) == [0, 1, 2]
        # What it had done is kept when the cluster manager loses its memory again.
        await run.service.stop("cluster/west-a")
        await run.service.start("cluster/west-a")
        await _ended(run, workload)

    in_live_service(database_url, tmp_path, scenario)


def test_a_workload_is_retuned(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _started(run, one_job("w", RANKING, _WORK, gpus=4, model=V100))
        async with run.regional("west") as scheduler:
            await scheduler.RetuneWorkload(
                messages.RetuneWorkloadRequest(workload=workload, job="main", cpus=60.0, memory_gib=100.0)
            )
            tuned = await run.until_event("tuned", workload)
            placement = tuned.details["placement"]
            assert isinstance(placement, list)
            (task,) = placement
            assert isinstance(task, dict)
            assert (task["cpus"], task["memory_gib"]) == (60.0, 100.0)
            inventory = await scheduler.GetInventory(messages.GetInventoryRequest(cluster="west-a"))
            (machine,) = (m for m in inventory.machines if m.machine == task["machine"])
            assert (machine.free_cpus, machine.free_memory_gib) == (36.0, 668.0)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await scheduler.RetuneWorkload(messages.RetuneWorkloadRequest(workload=workload, job="main", cpus=97.0))
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        await _ended(run, workload)

    in_live_service(database_url, tmp_path, scenario)


@pytest.mark.parametrize("to", ["elsewhere", "a region", "a cluster"])
def test_a_workload_migrates_without_going_through_the_queue(database_url: str, tmp_path: Path, to: str) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _started(run, one_job("w", RANKING, _WORK, gpus=8, model=A100))
        before = next(event for event in run.events if event.event == "started")
        other = {"east": ("west", "west-b"), "west": ("east", "east-a")}[before.region or ""]
        wanted = {"elsewhere": "", "a region": other[0], "a cluster": other[1]}[to]
        moved = await run.client.migrate(workload, wanted)
        assert moved.evicting == (f"{workload}#1",)
        started = await run.until_event("started", workload)
        assert started.attempt == 2
        assert _machines(started).isdisjoint(_machines(before))
        assert started.region == (before.region if to == "elsewhere" else other[0])
        of_workload = [event for event in run.events if event.workload == workload]
        ended = next(index for index, event in enumerate(of_workload) if event.event == "evicted")
        assert of_workload[ended].details["cause"] == "migrated"
        assert of_workload[ended + 1].event == "dispatched"
        assert started.details["progress"] == of_workload[ended].details["checkpoint_progress"]
        assert run.count("ranked") == 1
        await _ended(run, workload)

    in_live_service(database_url, tmp_path, scenario)


def test_a_migration_outlives_the_region_s_scheduler(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _started(run, one_job("w", RANKING, _WORK, gpus=8, model=V100))
        await run.service.stop("cluster/west-a")
        async with run.regional("west") as scheduler:
            await scheduler.MigrateWorkload(messages.MigrateWorkloadRequest(workload=workload))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await scheduler.MigrateWorkload(messages.MigrateWorkloadRequest(workload=workload))
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        await run.until_event("evicting", workload)
        await run.service.stop("regional/west")
        await run.service.start("regional/west")
        await run.service.start("cluster/west-a")
        started = await run.until_event("started", workload)
        assert started.attempt == 2
        assert run.count("evicted", cause="migrated") == 1
        await _ended(run, workload)

    in_live_service(database_url, tmp_path, scenario)


def test_a_workload_whose_new_place_is_lost_returns_to_the_queue(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _started(run, one_job("w", RANKING, _WORK, gpus=8, model=V100))
        await run.service.stop("cluster/west-a")
        async with run.regional("west") as scheduler:
            moved = await scheduler.MigrateWorkload(messages.MigrateWorkloadRequest(workload=workload))
            await scheduler.DrainMachine(messages.DrainMachineRequest(machine=moved.placements[0].machine))
        await run.service.start("cluster/west-a")
        started = await run.until_event("started", workload)
        assert started.attempt == 2
        assert run.count("ranked") == 2
        await _ended(run, workload)

    in_live_service(database_url, tmp_path, scenario)


def test_a_machine_on_loan_is_reclaimed_and_its_work_goes_on_elsewhere(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _started(run, one_job("w", RANKING, _WORK, gpus=8, model=V100))
        (machine,) = _machines(next(event for event in run.events if event.event == "started"))
        async with run.database.transaction() as connection:
            await connection.execute("UPDATE machines SET state = 'on_loan' WHERE machine = %s", (machine,))
        await run.service.stop("regional/west")
        await run.service.start("regional/west")
        async with run.regional("west") as scheduler:
            await _until_ready(scheduler)
            reclaimed = await scheduler.ReclaimMachines(messages.ReclaimMachinesRequest(machines=[machine]))
            assert list(reclaimed.evicting) == [f"{workload}#1"]
            evicted = await run.until_event("evicted", workload)
            assert evicted.details["cause"] == "reclaimed"
            started = await run.until_event("started", workload)
            assert machine not in _machines(started)
            inventory = await scheduler.GetInventory(messages.GetInventoryRequest(cluster="west-a"))
            assert [one.state for one in inventory.machines if one.machine == machine] == ["returning"]
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await scheduler.ReclaimMachines(messages.ReclaimMachinesRequest(machines=["west-a-m2", "west-a-m1"]))
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        await _ended(run, workload)

    in_live_service(database_url, tmp_path, scenario)


def test_the_fleet_keeps_a_machine_that_is_kept_for_an_attempt(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await _started(run, one_job("w", RANKING, _WORK, gpus=8, model=V100))
        await run.service.stop("cluster/west-a")
        async with run.regional("west") as scheduler:
            moved = await scheduler.MigrateWorkload(messages.MigrateWorkloadRequest(workload=workload))
        kept = moved.placements[0].machine
        east, west = FLEET.regions
        smaller = replace(west, clusters=(gpu_cluster("west-a", V100, int(kept[-1])), *west.clusters[1:]))
        with pytest.raises(PreconditionError, match=kept):
            await run.client.apply_fleet(fleet_to_proto(Fleet((east, smaller))))
        await run.service.start("cluster/west-a")
        await run.until_event("started", workload)
        await _ended(run, workload)

    in_live_service(database_url, tmp_path, scenario)
