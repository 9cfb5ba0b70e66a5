"""Machines are kept for the same gang, at the same time, in the simulator and in the service, and others wait alike."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import zip_longest

from data_placement.catalog import Catalog
from domain.events import Event, EventKind
from domain.identifiers import GpuModel, TenantId, WorkloadId
from domain.workload import Workload
from formats.fleet_file import parse_fleet_file
from formats.scheduler_file import ReservationsSection
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
TENANTS = parse_tenants("tenants: [{tenant: ads, priority: 1, quota: {gpus: 64}}]")
KEEPING = SETTINGS.model_copy(
    update={"reservations": ReservationsSection(enabled=True, after_s=100.0, start_up_s=20.0, look_every_s=50.0)}
)


def row(name: str, submit_s: float, duration_s: float, tasks: int = 1) -> TraceRow:
    return TraceRow(
        WorkloadId(name), TenantId("ads"), submit_s, duration_s, gpus=8 * tasks, gpu_model=GpuModel("A100"), tasks=tasks
    )


ROWS = (
    row("a", 0.0, 1_000.0),
    row("b", 0.0, 3_000.0),
    row("gang", 10.0, 600.0, tasks=2),
    row("unwanted", 240.0, 50_000.0),
    # At 1,020 the machine of `a` is idle; this one would end long after `b`, the next one before.
    row("long", 1_100.0, 5_000.0),
    row("short", 1_150.0, 800.0),
)
"""`unwanted` waits behind the gang, and is kept off as `long` is."""


def kept_in(events: Sequence[Event]) -> list[tuple[float, str, str | None, object, object]]:
    """What is said of reservations."""
    kinds = (EventKind.RESERVED, EventKind.RESERVATION_ENDED)
    told = [event for event in events if event.event in kinds]
    return [
        (event.t, event.event.value, event.workload, event.details.get("machines"), event.details.get("reason"))
        for event in told
    ]


def test_machines_are_kept_alike_in_simulator_and_service(database_url: str) -> None:
    simulated: list[Event] = []
    data = SimulationInput("kept", list(ROWS), FLEET, TENANTS, catalog=Catalog(()))
    simulate(data, MAST, KEEPING, seed=1, sink=simulated.append)
    greatest = greatest_gpus_per_machine(FLEET)
    workloads = [Workload(one.workload_id, workload_of_row(one, greatest), one.submit_s) for one in ROWS]

    async def scenario() -> list[Event]:
        async with Database(database_url) as database:
            service = await ServiceOnVirtualTime.open(database, FLEET, (), TENANTS, KEEPING, 0.0, 8)
            return await service.run(workloads)

    live = asyncio.run(scenario())
    for ours, theirs in zip_longest(logged_by(simulated), logged_by(live)):
        assert ours == theirs
    assert kept_in(simulated) == kept_in(live)
    reserved = [event for event in live if event.event is EventKind.RESERVED and event.workload == "gang"]
    assert [event.details["expected_start_s"] for event in reserved] == [3_020.0]
    for events in (simulated, live):
        report = validate([event.as_json() for event in events], FLEET, TENANTS, complete=True)
        assert report.violations == 0, report.shown[:3]
        starts = {str(event.workload): event.t for event in events if event.event is EventKind.STARTED}
        assert starts["short"] < starts["gang"] < min(starts["long"], starts["unwanted"])
