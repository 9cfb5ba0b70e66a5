"""I6: an owner that waits though machines of its own are not in use is found, and nobody else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from domain.cells import ClusterCells, OwnedCells, VirtualCluster
from domain.events import Event
from domain.fleet import Fleet
from domain.identifiers import TenantId, VirtualClusterId
from domain.tenant import HIGHEST_PRIORITY
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.tenants import unlimited_tenants
from simulator.policies.registry import policy_called
from simulator.validate import validate
from simulator.validation.log_checker import LogChecker
from simulator.validation.report import Invariant, ValidationReport
from tests.simulator.engine.checked_run import machine, region, row

OWNERS = (
    VirtualCluster(VirtualClusterId("a"), (OwnedCells("V100", "machine", 2),)),
    VirtualCluster(VirtualClusterId("b"), (OwnedCells("V100", "gpu", 8),)),
)
ROWS = (
    row("a1", 0, 5_000, 8, "a"),
    row("a2", 10, 5_000, 8, "a"),
    row("a3", 20, 5_000, 4, "a"),
    row("b1", 30, 5_000, 1, "b"),
    row("low", 5, 50_000, 8, "low"),
)
NO_ROOM = {"reason": "no_room"}


def fleet() -> Fleet:
    (cluster,) = region("r", [machine(f"m{n}", 8) for n in range(3)]).clusters
    cells = ClusterCells(virtual_clusters=OWNERS)
    return Fleet((replace(region("r"), clusters=(replace(cluster, mechanism="cells", cells=cells),)),))


def log() -> list[dict[str, Any]]:
    told: list[Event] = []
    tenants = unlimited_tenants(ROWS, default_priority=HIGHEST_PRIORITY)
    given = SimulationInput("t", ROWS, fleet(), tenants)
    simulate(given, policy_called("fifo"), SimulationSettings(), 1, sink=told.append)
    return [event.as_json() for event in told]


def checked(records: list[dict[str, Any]]) -> ValidationReport:
    checker = LogChecker(fleet(), unlimited_tenants(ROWS, default_priority=HIGHEST_PRIORITY))
    for line, record in enumerate(records, 1):
        checker.feed(line, record)
    return checker.report(complete=True)


def waiting_after(records: list[dict[str, Any]], workload: str, diagnosis: dict[str, Any]) -> list[dict[str, Any]]:
    """The log with one more wait, just after the workload was submitted."""
    place = next(n for n, r in enumerate(records) if r["event"] == "submitted" and r["workload"] == workload)
    template = next(record for record in records if record["event"] == "waiting")
    wait = {**template, "t": records[place]["t"], "workload": workload, "tenant": records[place]["tenant"]}
    return [*records[: place + 1], {**wait, "diagnosis": diagnosis}, *records[place + 1 :]]


def test_a_run_with_cells_keeps_it() -> None:
    records = log()
    report = checked(records)
    assert report.valid, str(report)
    assert report.checks[Invariant.I6] == 1, "a3 waits while both machines are in use"


@pytest.mark.parametrize("workload", ["a1", "a2"])
def test_an_owner_that_waits_for_what_it_does_not_use_is_found(workload: str) -> None:
    report = checked(waiting_after(log(), workload, NO_ROOM))
    (violation,) = report.shown
    assert (violation.invariant, violation.workload) == (Invariant.I6, workload)
    assert "of the 2 machines that tenant a owns are not in use" in violation.sentence


@pytest.mark.parametrize("workload", ["a3", "b1", "low"])
def test_nobody_else_is(workload: str) -> None:
    """Whose machines are in use; who owns other cells than machines; who owns none."""
    assert checked(waiting_after(log(), workload, NO_ROOM)).valid


def test_other_reasons_are_no_breach() -> None:
    assert checked(waiting_after(log(), "a1", {"reason": "no_answer"})).valid


def test_tenants_are_known_by_their_names() -> None:
    assert {TenantId(str(owner.virtual_cluster)) for owner in OWNERS} < {job.tenant for job in ROWS}


def test_nobody_takes_the_cpus_of_machines_from_their_owners_own_tasks_without_gpus() -> None:
    rows = (
        *(replace(row(f"cpus-{number}", 0, 5_000, 0, "a"), cpus=96.0, memory_gib=8.0) for number in range(3)),
        row("waits", 10, 100, 1, "a"),
    )
    tenants = unlimited_tenants(rows, default_priority=HIGHEST_PRIORITY)
    told: list[Event] = []
    simulate(
        SimulationInput("t", rows, fleet(), tenants), policy_called("fifo"), SimulationSettings(), 1, sink=told.append
    )
    records = [event.as_json() for event in told]
    assert "waits" in {record["workload"] for record in records if record["event"] == "waiting"}
    report = validate(records, fleet(), tenants, complete=True)
    assert report.valid, str(report)
    assert report.checks[Invariant.I6] > 0
