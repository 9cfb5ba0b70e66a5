"""Whoever asks what a region would plan hears what that would take from others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import cast

from data_placement.catalog import Catalog
from domain.fleet import MachineState
from domain.identifiers import AttemptNumber, JobName, WorkloadId
from domain.placement import AttemptKey, Holding
from domain.rank import Standing
from services.clock import SystemClock
from services.database.revision_store import Revisions
from services.regional_scheduler.loading import make_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.server import Context, RegionalSchedulerServicer
from services.regional_scheduler.session import RegionSession
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, FLEET, TENANTS, placement, specification
from topmast.v1.regional_scheduler_pb2 import PlanWorkloadRequest, PlanWorkloadResponse

THERE = placement("east-b-r0-m0", 8)


@dataclass
class AtWork:
    """A session, as far as it is asked what it would plan."""

    memory: RegionMemory


def planned(memory: RegionMemory, gpus: int, priority: int) -> PlanWorkloadResponse:
    async def asked() -> PlanWorkloadResponse:
        session = cast(RegionSession, AtWork(memory))
        servicer = RegionalSchedulerServicer(EAST, lambda: session, SystemClock())
        wanted = specification_to_proto(specification(gpus=gpus))
        request = PlanWorkloadRequest(specification=wanted, priority=priority)
        return await servicer.PlanWorkload(request, cast(Context, None))

    return asyncio.run(asked())


def test_it_hears_of_victims_and_of_flexible_tasks() -> None:
    """On the only machine that takes work an elastic attempt has a base task with six GPUs and a flexible one with one."""
    states = {
        machine.machine: MachineState.DRAINING
        for machine in FLEET.region(EAST).machines()
        if machine.machine != THERE.machine
    }
    memory = make_memory(Revisions(1, 1, 1), FLEET, states, TENANTS, Catalog(), [], EAST)
    assert memory is not None
    tasks = (
        THERE._replace(gpu_indices=tuple(range(6)), millicpus=72_000),
        THERE._replace(task=1, gpu_indices=(6,), millicpus=12_000),
    )
    key = AttemptKey(WorkloadId("w000001"), AttemptNumber(2))
    memory.inventory.hold(Holding(key, Standing(3, 0), 0.0, tasks, base_tasks=((JobName("train"), 1),)))
    assert planned(memory, 1, 6).reason == "fits on 1 machines without evicting anything"
    assert planned(memory, 2, 6).reason == "fits on 1 machines after taking 1 flexible tasks: 1 of w000001#2"
    assert planned(memory, 8, 1).reason == "fits on 1 machines after evicting 1 workloads: w000001#2"
