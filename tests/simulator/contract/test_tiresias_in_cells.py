"""A slice of a trace under 2D-LAS, in a cluster of virtual clusters: the service's code on PostgreSQL starts what the
simulator starts, when it does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
from domain.cells import CellHierarchy, CellLevel, ClusterCells
from domain.declared_cells import DeclaredMachines, DeclaredVirtualCluster
from domain.events import Event, EventKind
from domain.eviction import VictimChoice
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, ClusterId, TenantId, WorkloadId
from domain.resources import Quota
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY, Tenant
from domain.workload import Workload
from formats.scheduler_file import EvictionSection, LevelsSection, PrioritySection
from formats.trace import TraceRow
from formats.trace_workload import greatest_gpus_per_machine, workload_of_row
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.ordering.first_started import FirstStarted
from services.database.engine import Database
from simulator.baselines.mast import MAST
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.trace_files import TraceOptions, read_trace_file
from simulator.validate import validate
from tests.simulator.contract.service_on_virtual_time import ServiceOnVirtualTime
from tests.simulator.engine.checked_run import V100, machine, region

TRACE = Path(os.environ.get("TOPMAST_TRACES", "/nowhere")) / "philly_jobs.csv.gz"
OWNERS = (("ads", 2), ("bio", 1), ("car", 1))
"""Tenants, and how many machines of eight GPUs each owns; two more machines belong to nobody."""
MACHINES = 6
LEVELS = (CellLevel("gpu"), CellLevel("socket", 4), CellLevel("machine", 2))
THRESHOLDS_GPU_S, KNOB = (300.0, 3_000.0), 0.25
POLICY = replace(MAST, name="mast_with_2d_las", ordering=FirstStarted(), levels=AttainedService(THRESHOLDS_GPU_S, KNOB))
SECTION = PrioritySection(
    ordering="tiresias_las", levels=LevelsSection(thresholds_gpu_s=list(THRESHOLDS_GPU_S), promote_knob=KNOB)
)
"""The same as a service is told it, for each priority."""
PRIORITIES = dict.fromkeys(range(HIGHEST_PRIORITY, LOWEST_PRIORITY + 1), SECTION)
SETTINGS = SimulationSettings(
    costs=CostSettings(container_start_s=20.0, checkpoint_save_s=10.0, restore_s=5.0, checkpoint_interval_s=0.0),
    scan_period_s=60.0,
    eviction=EvictionSection(
        minimum_run_time_s=0.0,
        evictions_per_workload_and_hour=None,
        victims=VictimChoice.LEAST_WORK_DESTROYED,
    ),
)


def fleet_and_tenants() -> tuple[Fleet, Fleet, tuple[Tenant, ...]]:
    """The fleet as it is declared, the same with what the tenants own, and the tenants."""
    bare = region("east", [machine(f"m{number}", 8) for number in range(MACHINES)])
    cells = ClusterCells((CellHierarchy("v100", V100, LEVELS),))
    divided = replace(bare.clusters[0], mechanism="cells", cells=cells)
    fleet = Fleet((replace(bare, clusters=(divided,)),))
    cluster = ClusterId("east-c")
    tenants = tuple(
        Tenant(
            TenantId(name),
            1,
            Quota.of({ANY_GPU_MODEL: 8 * machines}),
            virtual_clusters=(DeclaredVirtualCluster(cluster, machines=DeclaredMachines(8 * machines, machines)),),
        )
        for name, machines in OWNERS
    )
    return fleet, fleet_with_virtual_clusters(fleet, declarations_of(tenants), "tenants"), tenants


def made_rows(count: int) -> list[TraceRow]:
    """Like a slice of Philly: most jobs small and short, a few wide or long."""
    rng = np.random.default_rng(5)
    arrivals_s = np.cumsum(rng.exponential(25.0, count)).round(0)
    gpus = rng.choice([1, 1, 1, 2, 4, 8], size=count)
    durations_s = np.minimum(rng.lognormal(6.0, 1.3, count), 20_000.0).round(0) + 1.0
    return [
        TraceRow(
            WorkloadId(f"w{number:04}"),
            TenantId(OWNERS[number % len(OWNERS)][0]),
            float(arrivals_s[number]),
            float(durations_s[number]),
            int(gpus[number]),
        )
        for number in range(count)
    ]


def philly_rows(count: int) -> list[TraceRow]:
    """The first of Philly, on three tenants, as wide as an owner's machine, and crowded into as many hours as fit here."""
    rows = read_trace_file(TRACE, TraceOptions(gpus_only=True)).rows[:count]
    begin_s = rows[0].submit_s
    demand_gpu_s = sum(min(row.gpus, 8) * min(row.duration_s, 20_000.0) for row in rows)
    span_s = rows[-1].submit_s - begin_s
    factor = demand_gpu_s / (8 * MACHINES * 0.9) / span_s
    return [
        TraceRow(
            WorkloadId(f"w{number:04}"),
            TenantId(OWNERS[crc32(row.tenant.encode()) % len(OWNERS)][0]),
            float(round((row.submit_s - begin_s) * factor)),
            float(round(min(max(row.duration_s, 1.0), 20_000.0))),
            min(row.gpus, 8),
        )
        for number, row in enumerate(rows)
    ]


def starts_of(events: Sequence[Event]) -> list[tuple[float, str, int | None]]:
    """When which attempt started, in order."""
    return sorted(
        (round(event.t, 3), str(event.workload), event.attempt) for event in events if event.event is EventKind.STARTED
    )


def same_starts(database_url: str, rows: list[TraceRow]) -> None:
    """Runs both, and compares every start with its time; both logs must be valid."""
    declared, fleet, tenants = fleet_and_tenants()
    simulated: list[Event] = []
    record = simulate(SimulationInput("slice", rows, fleet, tenants), POLICY, SETTINGS, seed=1, sink=simulated.append)
    greatest = greatest_gpus_per_machine(fleet)
    submitted = [Workload(row.workload_id, workload_of_row(row, greatest), row.submit_s) for row in rows]

    async def scenario() -> list[Event]:
        async with Database(database_url) as database:
            service = await ServiceOnVirtualTime.open(
                database,
                declared,
                (),
                tenants,
                SETTINGS,
                rows[0].submit_s,
                64,
                PRIORITIES,
                passes_of_one_global_tier=25,
            )
            return await service.run(sorted(submitted, key=lambda each: each.submitted_s))

    live = asyncio.run(scenario())
    assert starts_of(live) == starts_of(simulated)
    assert len(starts_of(live)) > len(rows)
    for events in (simulated, live):
        report = validate([event.as_json() for event in events], fleet, tenants, complete=True)
        assert report.violations == 0, report.shown[:3]
        assert report.events_by_kind["completed"] == len(rows)
        assert report.events_by_kind["promoted"] == record.counts.promotions > 0
        assert report.events_by_kind["evicting"] > 0
    assert not record.attempts.guaranteed.all(), "some run on what others own"


def test_a_made_slice_starts_in_the_same_order(database_url: str) -> None:
    same_starts(database_url, made_rows(80))


@pytest.mark.nightly
@pytest.mark.skipif(not TRACE.exists(), reason="the trace is not on this machine (TOPMAST_TRACES names its folder)")
def test_300_workloads_of_philly_start_in_the_same_order(database_url: str) -> None:
    same_starts(database_url, philly_rows(300))
