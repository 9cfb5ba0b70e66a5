"""What is told of machines while Ray does not answer: nothing, for who is said to be down loses all that runs there."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest
import ray

from domain.identifiers import ClusterId, MachineId
from domain.placement import AttemptKey
from services.clock import SystemClock
from services.execution import ray_executor, runner_pool
from services.execution.executor import MachineStatus
from services.execution.ray_attempt import RayExecutorConfiguration
from services.execution.ray_executor import RayExecutor
from services.execution.runner_pool import EVERY_MACHINE, OfferedMachines, RunnerHandle, machine_resource
from services.storage.store_urls import StoreUrls

M0, M1, M2 = MachineId("m0"), MachineId("m1"), MachineId("m2")


class ScriptedRay:
    """Nothing runs, and these are the machines that Ray offers; None while it does not answer."""

    def __init__(self) -> None:
        self.offered: OfferedMachines | None = None

    async def find(self) -> list[RunnerHandle]:
        return []

    async def remove_all_but(self, keys: Collection[AttemptKey]) -> None:
        del keys

    async def end_left_behind(self, *keys: object) -> None:
        del keys

    async def offered_machines(self) -> OfferedMachines | None:
        return self.offered

    def close(self) -> None: ...


def test_of_machines_of_which_ray_has_not_said_anything_nothing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = ScriptedRay()
    monkeypatch.setattr(ray_executor, "RunnerPool", lambda cluster, home: pool)
    configuration = RayExecutorConfiguration(tmp_path, StoreUrls(f"file://{tmp_path}"), machine_interval_s=3600.0)

    async def scenario() -> None:
        executor = RayExecutor(ClusterId("c"), [M0, M1], SystemClock(), configuration)
        await executor.start("127.0.0.1:1")
        changes = executor.subscribe()
        assert executor.machines() == ()
        pool.offered = OfferedMachines(frozenset({M0}))
        await executor.set_machines([M0, M1])
        up, down = MachineStatus(M0, True), MachineStatus(M1, False, "no living Ray node offers it")
        assert executor.machines() == (up, down)
        assert changes.take() == (up, down)
        pool.offered = None
        await executor.set_machines([M0, M1, M2])
        assert executor.machines() == (up, down), "what was known stays known, what is new is not"
        await executor.close()

    asyncio.run(scenario())


def test_a_ray_that_does_not_answer_the_first_question_keeps_nothing_else_from_being_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SilentRay(ScriptedRay):
        """Answers as soon as it is let."""

        def __init__(self) -> None:
            super().__init__()
            self.may_answer = asyncio.Event()

        async def offered_machines(self) -> OfferedMachines | None:
            await self.may_answer.wait()
            return self.offered

    pool = SilentRay()
    pool.offered = OfferedMachines(frozenset({M0}))
    monkeypatch.setattr(ray_executor, "RunnerPool", lambda cluster, home: pool)
    configuration = RayExecutorConfiguration(
        tmp_path, StoreUrls(f"file://{tmp_path}"), machine_interval_s=3600.0, first_look_s=0.01
    )

    async def scenario() -> None:
        executor = RayExecutor(ClusterId("c"), [M0], SystemClock(), configuration)
        async with asyncio.timeout(30.0):
            await executor.start("127.0.0.1:1")
            assert executor.machines() == ()
            changes = executor.subscribe()
            pool.may_answer.set()
            assert await changes.next() == (MachineStatus(M0, True),)
        await executor.close()

    asyncio.run(scenario())


def test_a_ray_that_names_no_living_node_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = {"Alive": False, "Resources": {machine_resource(M0): 1.0}}
    for nodes in ([], [dead]):
        monkeypatch.setattr(ray, "nodes", lambda nodes=nodes: nodes)
        assert asyncio.run(_asked()) is None
    monkeypatch.setattr(ray, "nodes", lambda: [dead, {"Alive": True, "Resources": {}}])
    assert asyncio.run(_asked()) == OfferedMachines()


async def _asked() -> OfferedMachines | None:
    pool = runner_pool.RunnerPool(ClusterId("c"))
    try:
        return await pool.offered_machines()
    finally:
        pool.close()


def test_a_node_for_every_machine_offers_those_that_are_added_later_unless_one_has_a_node_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = ScriptedRay()
    pool.offered = OfferedMachines(frozenset({M0}), every=True)
    monkeypatch.setattr(ray_executor, "RunnerPool", lambda cluster, home: pool)
    configuration = RayExecutorConfiguration(tmp_path, StoreUrls(f"file://{tmp_path}"), machine_interval_s=3600.0)

    async def scenario() -> None:
        executor = RayExecutor(ClusterId("c"), [M0], SystemClock(), configuration)
        await executor.start("127.0.0.1:1")
        await executor.set_machines([M0, M1])
        assert executor.machines() == (MachineStatus(M0, True), MachineStatus(M1, True))
        await executor.close()

    asyncio.run(scenario())
    assert pool.offered.resource_of(M0) == machine_resource(M0)
    assert pool.offered.resource_of(M1) == EVERY_MACHINE
    assert OfferedMachines(frozenset({M0})).resource_of(M1) == machine_resource(M1), "its node may yet come"
