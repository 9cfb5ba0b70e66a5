"""Elastic attempts lose machines, and grow beside a stream of others: emulated, on a compressed clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from domain.identifiers import MachineId
from domain.workload import Emulated
from services.clock import ServiceClock
from services.cluster_manager import tier
from services.execution.emulated_executor import EmulatedExecutor
from tests.live.running import CONFIGURATION, LiveRun, in_live_service
from tests.live.test_pending_changes import (
    SMALL,
    cancelled,
    machine_of,
    resize,
    started,
    tasks_of,
    without_cluster_manager,
)
from tests.live.world import A100, RANKING, one_job
from topmast.v1 import regional_scheduler_pb2 as messages

pytestmark = pytest.mark.live

EXECUTORS: list[EmulatedExecutor] = []
"""Those of the test, the newest last."""
LOST: list[MachineId] = []
"""Machines that are lost when an executor is made."""


class KnownExecutor(EmulatedExecutor):
    """One that a test finds again, to lose machines of."""

    def __init__(
        self, clock: ServiceClock, machines: Sequence[MachineId] | None = None, *, checkpoint_time_s: float = 0.0
    ) -> None:
        super().__init__(clock, machines, checkpoint_time_s=checkpoint_time_s)
        for machine in LOST:
            self.set_machine(machine, False, "fire")
        EXECUTORS.append(self)


@pytest.fixture(autouse=True)
def _known_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    EXECUTORS.clear()
    LOST.clear()
    monkeypatch.setattr(tier, "EmulatedExecutor", KnownExecutor)


def test_the_loss_of_a_flexible_machine_is_a_resize_and_that_of_a_base_machine_an_eviction(
    database_url: str, tmp_path: Path
) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await started(run)
        await resize(run, workload, 2)
        grown = await run.until_event("resized", workload)
        lost = machine_of(grown, 1)
        EXECUTORS[-1].set_machine(lost, False, "power cut")
        shrunk = await run.until_event("resized", workload)
        assert (tasks_of(shrunk), shrunk.details["speed"], shrunk.attempt) == (1, 1.0, 1)
        assert shrunk.details["cause"] in {"machine_lost", "task_lost"}
        assert shrunk.details["lost"] == [{"job": "main", "task": 1}]
        await resize(run, workload, 2)
        again = await run.until_event("resized", workload)
        assert machine_of(again, 1) != lost
        EXECUTORS[-1].set_machine(machine_of(again, 0), False, "fire")
        evicted = await run.until_event("evicted", workload)
        assert evicted.details["cause"] == "machine_lost"
        EXECUTORS[-1].set_machine(lost, True)
        await run.until_event("started", workload)
        await cancelled(run, workload)

    in_live_service(database_url, tmp_path, scenario, fleet=SMALL)


@pytest.mark.parametrize("from_tasks", [1, 2], ids=["growing", "shrinking"])
def test_an_attempt_with_a_pending_change_leaves_a_base_machine_that_is_lost(
    database_url: str, tmp_path: Path, from_tasks: int
) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await started(run)
        last = next(event for event in run.events if event.event == "started")
        if from_tasks == 2:
            await resize(run, workload, 2)
            last = await run.until_event("resized", workload)
        async with without_cluster_manager(run):
            await resize(run, workload, 3 - from_tasks)
            LOST.append(machine_of(last, 0))
        await run.until_event("evicted", workload)
        await run.until_event("started", workload)
        await cancelled(run, workload)

    in_live_service(database_url, tmp_path, scenario, fleet=SMALL)


def test_a_drained_machine_costs_flexible_tasks_only(database_url: str, tmp_path: Path) -> None:
    async def scenario(run: LiveRun) -> None:
        workload = await started(run)
        await resize(run, workload, 2)
        drained = machine_of(await run.until_event("resized", workload), 1)
        async with run.regional("east") as scheduler:
            answer = await scheduler.DrainMachine(messages.DrainMachineRequest(machine=drained))
        assert list(answer.evicting) == []
        shrunk = await run.until_event("resized", workload)
        assert (tasks_of(shrunk), shrunk.attempt, shrunk.details.get("cause")) == (1, 1, None)
        await cancelled(run, workload)

    in_live_service(database_url, tmp_path, scenario, fleet=SMALL)


def test_an_attempt_grows_although_workloads_are_submitted_all_the_time(database_url: str, tmp_path: Path) -> None:
    async def trickle(run: LiveRun, over: asyncio.Event) -> None:
        while not over.is_set():
            await run.submit([one_job("small", RANKING, Emulated(1.0, 60.0), gpus=8, model=A100)])
            await asyncio.sleep(0.02)

    async def scenario(run: LiveRun) -> None:
        workload = await started(run)
        over = asyncio.Event()
        trickling = asyncio.create_task(trickle(run, over))
        await run.until_event("resized", workload)
        over.set()
        await trickling
        await cancelled(run, workload)

    elastic_rounds = CONFIGURATION.model_copy(update={"elastic": "lyra", "round_s": 60.0})
    in_live_service(database_url, tmp_path, scenario, fleet=SMALL, configuration=elastic_rounds)
