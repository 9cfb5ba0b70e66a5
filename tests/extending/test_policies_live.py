"""A policy of Topmast and one of an outside package order a real service, PostgreSQL and Ray and all, as they order a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import pytest

from domain.events import Event, EventKind
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, TenantId
from domain.resources import Quota
from domain.tenant import Tenant
from domain.workload import Emulated
from formats.scheduler_file import LevelsSection, PrioritySection
from formats.trace import TraceRow
from global_scheduler.levels.attained_service import AttainedService
from services.configuration import Configuration, ScanConfiguration
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.policy import Policy
from simulator.policies.registry import policy_called
from tests.extending.packages import ExamplePackage, package_of
from tests.live.real_service import RealService, real_service
from tests.live.world import one_job
from tests.simulator.baselines.runs import FREE, region_of, row

pytestmark = pytest.mark.live

CLOCK_SPEED = 60.0
PRIORITY = 2
TEAM = TenantId("team")
TENANTS = (Tenant(TEAM, PRIORITY, Quota.of({ANY_GPU_MODEL: 64})),)
FLEET = Fleet((region_of("east", 4),))
TOLD = frozenset({"dispatched", "reclassified", "evicted", "completed"})


class LiveStep(NamedTuple):
    """What happened to a workload, by the name that the test gives it."""

    event: str
    name: str
    attempt: int | None
    level: int | None


def configuration(section: PrioritySection) -> Configuration:
    return Configuration(
        scan=ScanConfiguration(period_real_s=1.0, debounce_real_s=0.05), priorities={PRIORITY: section}
    )


def submit(service: RealService, name: str, gpus: int, work_s: float) -> str:
    (workload,) = service.submit([one_job(name, TEAM, Emulated(work_s), gpus=gpus)])
    return workload


def live_steps(service: RealService, names: dict[str, str]) -> list[LiveStep]:
    return [
        LiveStep(event.event, names[event.workload], event.attempt, event.level)
        for event in service.events
        if event.event in TOLD and event.workload in names
    ]


def simulated_steps(policy: Policy, rows: Iterable[TraceRow]) -> list[LiveStep]:
    events: list[Event] = []
    given = SimulationInput("live", list(rows), FLEET, TENANTS)
    simulate(given, replace(policy, scans=True), FREE, seed=1, sink=events.append)
    return [
        LiveStep(event.event.value, str(event.workload), event.attempt, event.level)
        for event in events
        if event.event.value in TOLD and event.event is not EventKind.SUBMITTED
    ]


def test_a_policy_of_a_package_orders_the_queue_as_in_a_simulation(
    install: Callable[[ExamplePackage], None],
) -> None:
    install(package_of("An ordering policy"))
    work = (("runs", 4, 600.0), ("narrow", 1, 60.0), ("middle", 2, 90.0), ("wide", 4, 30.0), ("wider", 3, 45.0))
    with real_service(FLEET, TENANTS, CLOCK_SPEED, configuration(PrioritySection(ordering="widest_first"))) as service:
        names = {submit(service, *work[0]): work[0][0]}
        service.until_more(1, ["started"])
        names |= {submit(service, *wanted): wanted[0] for wanted in work[1:]}
        service.until_all_ended()
        live = live_steps(service, names)
        service.check()
    rows = [row(name, float(at), work_s, gpus, tenant="team") for at, (name, gpus, work_s) in enumerate(work)]
    simulated = simulated_steps(policy_called("widest_first"), rows)
    dispatched = [step.name for step in live if step.event == "dispatched"]
    assert dispatched == [step.name for step in simulated if step.event == "dispatched"]
    assert dispatched == ["runs", "wide", "wider", "narrow", "middle"], "narrow fits beside wider, middle does not"


@pytest.mark.nightly
def test_las_demotes_and_evicts_as_in_a_simulation() -> None:
    levels = LevelsSection(thresholds_gpu_s=[1200.0])
    section = PrioritySection(ordering="las", levels=levels)
    with real_service(FLEET, TENANTS, CLOCK_SPEED, configuration(section)) as service:
        names = {submit(service, "long", 4, 900.0): "long"}
        service.until_more(1, ["started"])
        names[submit(service, "short", 4, 120.0)] = "short"
        service.until_all_ended()
        live = live_steps(service, names)
        started_s = next(event.t for event in service.events if event.event == "started")
        crossed_s = next(event.t for event in service.events if event.event == "reclassified")
        service.check()
    rows = [row("long", 0.0, 900.0, 4, tenant="team"), row("short", 1.0, 120.0, 4, tenant="team")]
    policy = replace(policy_called("las"), levels=AttainedService((1200.0,)))
    simulated = simulated_steps(policy, rows)
    assert live == simulated
    assert live == [
        LiveStep("dispatched", "long", 1, 0),
        LiveStep("reclassified", "long", 1, 1),
        LiveStep("dispatched", "short", 1, 0),
        LiveStep("evicted", "long", 1, 1),
        LiveStep("completed", "short", 1, 0),
        LiveStep("dispatched", "long", 2, 1),
        LiveStep("completed", "long", 2, 1),
    ]
    assert crossed_s >= started_s + 1200.0 / 4, "not before it has received the threshold"
