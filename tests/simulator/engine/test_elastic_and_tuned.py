"""One round resizes and tunes: at no instant does anybody hold what somebody else has yet to give up."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from domain.events import Event
from domain.identifiers import JobName, TenantId, WorkloadId
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from formats.trace_workload import MODEL_LABEL
from regional_scheduler.elastic.lyra import LyraElastic
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policies
from simulator.validate import validate
from tests.simulator.engine.checked_run import NO_COSTS, Record, unlimited
from tests.simulator.engine.profiled_run import PROFILES, fleet_of, trained

POLICY = replace(policies()["synergy_tune"], elastic=LyraElastic())


def random_workload(number: int, choose: random.Random) -> Workload:
    """One task of one GPU, which may get one or two more."""
    work = Emulated(choose.choice((200.0, 1000.0, 3000.0)))
    job = JobSpecification(JobName("job"), 1, TaskResources(gpus=1), work, max_tasks=choose.choice((0, 2, 3)))
    labels = ((MODEL_LABEL, choose.choice(("hungry", "lean"))),)
    specification = WorkloadSpecification(f"w{number}", TenantId("t"), (job,), labels=labels)
    return Workload(WorkloadId(f"w{number}"), specification, choose.choice((0.0, 0.0, 300.0, 700.0)))


def log_of(records: list[Record]) -> Callable[[Event], None]:
    return lambda event: records.append(event.as_json())


def test_never_more_than_there_is_at_any_instant() -> None:
    tenants = unlimited([trained("any", 0.0, 1.0, "lean")])
    resized = tuned = 0
    for seed in range(60):
        choose = random.Random(seed)
        fleet = fleet_of(*(choose.choice((2, 4)) for _ in range(choose.randint(1, 2))))
        workloads = tuple(random_workload(number, choose) for number in range(choose.randint(2, 5)))
        given = SimulationInput("test", (), fleet, tenants, workloads=workloads, profiles=PROFILES)
        log: list[Record] = []
        Simulation(given, POLICY, NO_COSTS, 1, log_of(log)).run()
        report = validate(log, fleet, tenants, complete=True, profiles=PROFILES)
        assert report.valid, f"seed {seed}: {report}"
        resized += sum(told["event"] == "resized" for told in log)
        tuned += sum(told["event"] == "tuned" for told in log)
    assert min(resized, tuned) > 50, (resized, tuned)
