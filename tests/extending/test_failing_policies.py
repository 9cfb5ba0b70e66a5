"""Policies of outside packages that fail: they are named, and a service that was told to follow one goes on without it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from formats.scheduler_file import PrioritySection
from services.configuration import Configuration
from tests.database.small_world import TENANTS
from tests.extending.logged import logged
from tests.extending.packages import ExamplePackage
from tests.global_scheduler_service.service import CONFIGURATION, running_service

Install = Callable[[ExamplePackage], None]

CODE = """
from dataclasses import dataclass
from global_scheduler.knowledge import Knowledge
from global_scheduler.levels.policy import RunningLevels
from simulator.policies.policy import Policy
import numpy as np

@dataclass(frozen=True, slots=True)
class Part:
    name: str = "moody"
    needs: Knowledge = Knowledge.LIVE
    moves_with_time: bool = False
    def ordering_credit(self, queue):
        {ordering}
    def queued_levels(self, queue):
        {levels}
    def running_levels(self, running):
        return RunningLevels(running.constant(0), running.constant(float("inf")))

MOODY = Policy(name="moody", summary="fails", ordering=Part(), levels=Part())
"""


def package(ordering: str = "return queue.known.gpus", levels: str = "return queue.constant(0)") -> ExamplePackage:
    code = CODE.format(ordering=ordering, levels=levels)
    return ExamplePackage("moody", {"topmast.policies": {"moody": "moody_policy:MOODY"}}, {"moody_policy": code})


@pytest.mark.parametrize(
    ("failing", "told"),
    [
        (package("raise RuntimeError('out of mood')"), "ordering policy moody failed: RuntimeError: out of mood"),
        (package("return queue.known.gpus * np.nan"), "ordering policy moody gave an entry no finite ordering credit"),
        (package("return np.zeros(0)"), r"ordering policy moody gave float64 of shape (0,) for 1 workloads"),
        (package("return np.array(['first'] * len(queue))"), "ordering policy moody gave <U5 of shape (1,)"),
        (package("return queue.remaining_s(self.name)"), "moody needs to know how long workloads will run"),
        (package(levels="return queue.constant(0.5)"), "level policy moody gave levels from 0.5 to 0.5"),
        (package(levels="return queue.nothing"), "level policy moody failed: AttributeError"),
    ],
)
def test_a_service_goes_on_when_a_policy_fails(
    database_url: str, install: Install, failing: ExamplePackage, told: str
) -> None:
    """It takes submissions, and says which policy failed."""
    install(failing)
    priority = TENANTS[0].priority
    configuration = Configuration(
        scan=CONFIGURATION.scan, lease=CONFIGURATION.lease, priorities={priority: PrioritySection(ordering="moody")}
    )

    async def run() -> None:
        async with running_service(database_url, configuration=configuration) as service:
            await service.apply()
            with logged(told) as heard:
                submitted = await service.submit()
                async with asyncio.timeout(30.0):
                    await heard.wait()
            assert not service.running.done()
            assert (await service.get(submitted.workload)).workload == submitted.workload
            assert (await service.submit()).workload != submitted.workload

    asyncio.run(run())
