"""A workload that is split over clusters takes the same course in the simulator and in the service: placed, evicted, resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import zip_longest

from data_placement.catalog import Catalog
from domain.events import Event, EventKind
from domain.identifiers import GpuModel, TenantId, WorkloadId
from domain.workload import Workload
from formats.fleet_file import parse_fleet_file
from formats.tenants_file import parse_tenants
from formats.trace import TraceRow
from formats.trace_workload import greatest_gpus_per_machine, workload_of_row
from services.database.engine import Database
from simulator.baselines.mast import MAST
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.validate import validate
from tests.simulator.contract.service_on_virtual_time import ServiceOnVirtualTime
from tests.simulator.contract.test_own_course import SETTINGS, logged_by

FLEET = parse_fleet_file(
    """
    regions:
      - region: east
        clusters:
          - {cluster: east-a, machine_groups: [{count: 2, gpu_model: A100, gpus: 8, cpus: 64, memory_gib: 512}]}
          - {cluster: east-b, machine_groups: [{count: 2, gpu_model: A100, gpus: 8, cpus: 64, memory_gib: 512}]}
    """
).fleet
TENANTS = parse_tenants(
    """
    tenants:
      - {tenant: ads, priority: 1, quota: {gpus: 32}}
      - {tenant: guests, priority: 5, quota: {gpus: 0}}
    """
)


def row(name: str, tenant: str, submit_s: float, tasks: int, duration_s: float, *, split: bool = False) -> TraceRow:
    return TraceRow(
        WorkloadId(name),
        TenantId(tenant),
        submit_s,
        duration_s,
        gpus=8 * tasks,
        gpu_model=GpuModel("A100"),
        tasks=tasks,
        across_clusters=split,
    )


ROWS = (
    row("whole", "ads", 0.0, 2, 300.0),
    # Waits for the other cluster, is split, and leaves both for one of a better priority that needs one of them.
    row("split", "guests", 10.0, 3, 900.0, split=True),
    row("better", "ads", 500.0, 2, 400.0),
    row("small", "ads", 600.0, 1, 100.0, split=True),
)


def clusters_of(events: Sequence[Event], workload: str) -> list[list[str]]:
    """The clusters of each of its starts."""
    started = [event for event in events if event.event is EventKind.STARTED and event.workload == workload]
    found = []
    for event in started:
        placement = event.details["placement"]
        assert isinstance(placement, list)
        assert [task["task"] for task in placement if isinstance(task, dict)] == list(range(len(placement)))
        found.append(sorted({str(task["cluster"]) for task in placement if isinstance(task, dict)}))
    return found


def test_a_split_workload_takes_the_same_course_in_simulator_and_service(database_url: str) -> None:
    simulated: list[Event] = []
    data = SimulationInput("split", list(ROWS), FLEET, TENANTS, catalog=Catalog(()))
    simulate(data, MAST, SETTINGS, seed=1, sink=simulated.append)
    greatest = greatest_gpus_per_machine(FLEET)
    workloads = [Workload(one.workload_id, workload_of_row(one, greatest), one.submit_s) for one in ROWS]

    async def scenario() -> list[Event]:
        async with Database(database_url) as database:
            service = await ServiceOnVirtualTime.open(database, FLEET, (), TENANTS, SETTINGS, 0.0, 8)
            return await service.run(workloads)

    live = asyncio.run(scenario())
    for ours, theirs in zip_longest(logged_by(simulated), logged_by(live)):
        assert ours == theirs
    for events in (simulated, live):
        report = validate([event.as_json() for event in events], FLEET, TENANTS, complete=True)
        assert report.violations == 0, report.shown[:3]
        assert clusters_of(events, "split") == [["east-a", "east-b"]] * 2
        assert len(clusters_of(events, "small")[0]) == 1
        assert report.events_by_kind["completed"] == len(ROWS)
        evicted = [event.workload for event in events if event.event is EventKind.EVICTED]
        assert evicted == ["split"]
