"""Elastic attempts have changes pending while other things happen to them: emulated, on a compressed clock."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from domain.fleet import Fleet, Region
from domain.identifiers import JobName, MachineId
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from services.wire.fleets import fleet_to_proto
from tests.live.running import LiveRun, in_live_service
from tests.live.world import A100, EAST, RANKING, gpu_cluster
from topmast import Event
from topmast.v1 import regional_scheduler_pb2 as messages

pytestmark = pytest.mark.live

SMALL = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 3),)),))
LARGER = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 4),)),))


def elastic() -> WorkloadSpecification:
    """Each task takes a machine."""
    resources = TaskResources(gpus=8, gpu_model=A100)
    job = JobSpecification(JobName("main"), 1, resources, Emulated(1e6, 60.0), max_tasks=2)
    return WorkloadSpecification("elastic", RANKING, (job,))


def machine_of(event: Event, task: int) -> MachineId:
    placement = event.details["placement"]
    assert isinstance(placement, list)
    (machine,) = [entry["machine"] for entry in placement if isinstance(entry, dict) and entry["task"] == task]
    return MachineId(str(machine))


def tasks_of(event: Event) -> int:
    placement = event.details["placement"]
    assert isinstance(placement, list)
    return len(placement)


async def resize(run: LiveRun, workload: str, tasks: int) -> None:
    async with run.regional("east") as scheduler:
        request = messages.ResizeWorkloadRequest(workload=workload, job="main", tasks=tasks)
        await scheduler.ResizeWorkload(request, wait_for_ready=True)


async def started(run: LiveRun) -> str:
    (workload,) = await run.submit([elastic()])
    await run.until_event("started", workload)
    return workload


async def cancelled(run: LiveRun, workload: str, fleet: Fleet = SMALL) -> None:
    """Everything is over: the log is in order, and nothing is left."""
    await run.client.cancel(workload)
    await run.follow()
    run.check(fleet, tables=())
    await run.check_nothing_is_left()


@asynccontextmanager
async def without_cluster_manager(run: LiveRun) -> AsyncIterator[None]:
    await run.service.stop("cluster/east-a")
    yield
    await run.service.start("cluster/east-a")


@pytest.mark.parametrize("from_tasks", [1, 2], ids=["growing", "shrinking"])
@pytest.mark.parametrize("happens", ["cancelled", "drained", "fleet changed"])
def test_a_change_that_is_pending_ends_whatever_happens_meanwhile(
    database_url: str, tmp_path: Path, happens: str, from_tasks: int
) -> None:
    """The cluster manager is dead while it is decided, and when that happens."""

    async def scenario(run: LiveRun) -> None:
        workload = await started(run)
        last = next(event for event in run.events if event.event == "started")
        if from_tasks == 2:
            await resize(run, workload, 2)
            last = await run.until_event("resized", workload)
        base = machine_of(last, 0)
        fleet = SMALL
        async with without_cluster_manager(run):
            await resize(run, workload, 3 - from_tasks)
            match happens:
                case "cancelled":
                    await run.client.cancel(workload)
                case "drained":
                    async with run.regional("east") as scheduler:
                        await scheduler.DrainMachine(messages.DrainMachineRequest(machine=base))
                case "fleet changed":
                    fleet = LARGER
                    await run.client.apply_fleet(fleet_to_proto(LARGER))
                case _:
                    raise AssertionError(happens)
        match happens:
            case "cancelled":
                await run.follow()
                run.check(fleet, tables=())
                await run.check_nothing_is_left()
                return
            case "drained":
                await run.until_event("evicted", workload)
                await run.until_event("started", workload)
            case _:
                resized = await run.until_event("resized", workload)
                assert tasks_of(resized) == 3 - from_tasks
        await cancelled(run, workload, fleet)

    in_live_service(database_url, tmp_path, scenario, fleet=SMALL)
