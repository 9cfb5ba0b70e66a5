"""Within quota at priority 6 and over quota take the same course in the simulator and in the service."""

from __future__ import annotations

import asyncio
from itertools import zip_longest

from data_placement.catalog import Catalog
from domain.events import Event, EventKind
from domain.identifiers import GpuModel, TenantId, WorkloadId
from domain.rank import OVER_QUOTA_LEVELS
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
    """
).fleet
TENANTS = parse_tenants(
    """
    tenants:
      - {tenant: ads, priority: 1, quota: {gpus: 8}}
      - {tenant: night, priority: 6, quota: {gpus: 8}}
      - {tenant: guests, priority: 5, quota: {gpus: 0}}
    """
)


def row(name: str, tenant: str, submit_s: float, duration_s: float) -> TraceRow:
    return TraceRow(WorkloadId(name), TenantId(tenant), submit_s, duration_s, gpus=8, gpu_model=GpuModel("A100"))


ROWS = (
    row("guest-1", "guests", 0.0, 2_000.0),
    row("guest-2", "guests", 1.0, 2_000.0),
    # Evicts the younger guest; the second of its tenant is over quota, as guests are, and evicts nobody.
    row("night-1", "night", 500.0, 600.0),
    row("night-2", "night", 510.0, 300.0),
    row("ads-1", "ads", 800.0, 200.0),
)


def test_what_is_within_quota_at_the_lowest_priority_evicts_alike(database_url: str) -> None:
    simulated: list[Event] = []
    data = SimulationInput("night", list(ROWS), FLEET, TENANTS, catalog=Catalog(()))
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
        assert report.events_by_kind["completed"] == len(ROWS)
        evicted = [(event.workload, event.details["by"]) for event in events if event.event is EventKind.EVICTED]
        assert evicted == [("guest-2", "night-1"), ("guest-1", "ads-1")]
        first = {
            event.workload: (event.priority, event.level)
            for event in reversed(events)
            if event.event is EventKind.DISPATCHED
        }
        assert first[WorkloadId("night-1")] == (6, 0)
        assert first[WorkloadId("guest-1")] == (6, OVER_QUOTA_LEVELS)
