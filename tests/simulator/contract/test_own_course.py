"""The submissions of a recorded run go through the simulator and through the live service's code, and take the same course.

Here nothing is put right in between: each driver goes on from what it decided itself, for the whole run. The service's
code runs on real PostgreSQL, with its scan loop, its auctioneers, its dispatching and its records; both have the same
price list and the same instants for scan passes. At the end their event logs are compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeAlias

import pytest

from data_placement.catalog import Catalog
from domain.events import Event, EventKind, JsonValue
from domain.eviction import VictimChoice
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from domain.workload import Emulated, Workload
from formats.scheduler_file import EvictionSection, LevelsSection, PrioritySection
from formats.trace import TraceRow
from formats.trace_workload import greatest_gpus_per_machine, workload_of_row
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.ordering.fewest_gpus import FewestGpus
from global_scheduler.ordering.first_started import FirstStarted
from global_scheduler.ordering.gittins import GittinsOrdering
from services.database.engine import Database
from simulator.baselines.mast import MAST
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.policy import Policy
from simulator.validate import validate
from tests.simulator.contract.recorded_run import RecordedRun, read_recorded_run
from tests.simulator.contract.service_on_virtual_time import ServiceOnVirtualTime

SETTINGS = SimulationSettings(
    costs=CostSettings(container_start_s=20.0, checkpoint_save_s=10.0, restore_s=5.0, checkpoint_interval_s=0.0),
    scan_period_s=60.0,
    eviction=EvictionSection(
        minimum_run_time_s=0.0,
        evictions_per_workload_and_hour=None,
        victims=VictimChoice.LEAST_WORK_DESTROYED,
    ),
)

AS_PUBLISHED = SETTINGS.model_copy(
    update={"eviction": SETTINGS.eviction.model_copy(update={"victims": VictimChoice.PUBLISHED})}
)
"""As Tiresias's policies evict where nothing is said."""

Logged: TypeAlias = tuple[float, str, str | None, int | None, int | None, int | None, str | None, str]
"""Time in milliseconds, kind, workload, attempt, priority, level, region, and the details that both log."""

COMPARED = {
    EventKind.SUBMITTED: ("jobs", "tables"),
    EventKind.RANKED: ("credit", "within_quota"),
    EventKind.PROMOTED: ("waited_s",),
    EventKind.RECLASSIFIED: ("within_quota",),
    EventKind.DISPATCHED: ("placement", "within_quota", "evicts"),
    EventKind.STARTED: ("placement", "within_quota"),
    EventKind.EVICTING: ("cause", "by", "by_priority", "by_level"),
    EventKind.EVICTED: ("cause", "by", "by_priority", "by_level"),
    EventKind.COMPLETED: (),
}
"""That it waits is logged of each workload by the service, and of the first of its kind by the simulator: see below."""


def rows_of(run: RecordedRun, work_factor: float) -> list[TraceRow]:
    """The submissions that a trace can tell of: of one job, and content with any copy of their tables."""
    rows = []
    for workload in run.workloads:
        job, *more = workload.specification.jobs
        if more or any(read.fresh for read in workload.specification.tables):
            continue
        if not isinstance(job.entry_point, Emulated):
            raise ValueError(f"{workload.workload} is not emulated")
        rows.append(
            TraceRow(
                workload_id=workload.workload,
                tenant=workload.specification.tenant,
                submit_s=workload.submitted_s,
                duration_s=job.entry_point.duration_s * work_factor,
                gpus=job.tasks * job.resources.gpus,
                gpu_model=job.resources.gpu_model,
                tasks=job.tasks,
                tables=tuple(read.table for read in workload.specification.tables),
            )
        )
    return rows


def workloads_of(run: RecordedRun, rows: Sequence[TraceRow]) -> list[Workload]:
    """The workloads of the rows, as one submits them to replay a trace in the service."""
    greatest = greatest_gpus_per_machine(run.fleet)
    return [Workload(row.workload_id, workload_of_row(row, greatest), row.submit_s) for row in rows]


def logged_by(events: Sequence[Event]) -> list[Logged]:
    """What counts of a log, in an order of its own: of what happens at one instant either may be logged first."""
    logged = []
    for event in events:
        if event.event in COMPARED:
            details = _canonical({name: event.details.get(name) for name in COMPARED[event.event]})
            logged.append(
                (
                    round(event.t, 3),
                    event.event.value,
                    event.workload,
                    event.attempt,
                    event.priority,
                    event.level,
                    event.region,
                    details,
                )
            )
    return sorted(logged, key=repr)


def _canonical(value: JsonValue) -> str:
    """The same text for the same value: a placement may name its tasks in any order, and 6 may be written 6.0."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_canonical(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(sorted(map(_canonical, value))) + "]"
    return repr(float(value)) if isinstance(value, (int, float)) else repr(value)


EVERY_PRIORITY = range(HIGHEST_PRIORITY, LOWEST_PRIORITY + 1)
THRESHOLDS_GPU_S = (400.0, 4_000.0)

PROMOTING = AttainedService(THRESHOLDS_GPU_S, promote_knob=0.5)
TIRESIAS_LAS = replace(MAST, name="mast_with_tiresias_las", ordering=FirstStarted(), levels=PROMOTING)
TIRESIAS_GITTINS = replace(TIRESIAS_LAS, name="mast_with_tiresias_gittins", ordering=GittinsOrdering(THRESHOLDS_GPU_S))
QUEUES = LevelsSection(thresholds_gpu_s=list(THRESHOLDS_GPU_S), promote_knob=0.5)
TIRESIAS_LAS_LIVE = PrioritySection(ordering="tiresias_las", levels=QUEUES)
TIRESIAS_GITTINS_LIVE = PrioritySection(ordering="tiresias_gittins", levels=QUEUES)

WORK_FACTOR = 2.0
WHOLE = (pytest.mark.nightly, pytest.mark.timeout(900))
"""Where each workload is evicted about twice, all submissions take minutes: half of them under LAS for every day."""


@pytest.mark.parametrize(
    ("policy", "live_section", "submissions", "window"),
    [
        pytest.param(MAST, None, 151, 8, id="mast"),
        pytest.param(TIRESIAS_LAS, TIRESIAS_LAS_LIVE, 75, 8, id="tiresias_las", marks=WHOLE),
        pytest.param(TIRESIAS_GITTINS, TIRESIAS_GITTINS_LIVE, 75, 8, id="tiresias_gittins", marks=WHOLE),
        pytest.param(
            replace(MAST, ordering=FewestGpus()), PrioritySection(ordering="sf"), 151, 64, id="sf", marks=WHOLE
        ),
        pytest.param(TIRESIAS_LAS, TIRESIAS_LAS_LIVE, 151, 8, id="all_tiresias_las", marks=WHOLE),
        pytest.param(TIRESIAS_GITTINS, TIRESIAS_GITTINS_LIVE, 151, 8, id="all_tiresias_gittins", marks=WHOLE),
    ],
)
def test_a_whole_run_takes_the_same_course(
    database_url: str, policy: Policy, live_section: PrioritySection | None, submissions: int, window: int
) -> None:
    """Every rank, dispatch, start, change of level, eviction and end, with its time; twice the work makes a crowd."""
    run = read_recorded_run()
    settings = AS_PUBLISHED if isinstance(policy.levels, AttainedService) else SETTINGS
    rows = rows_of(run, WORK_FACTOR)[:submissions]
    assert len(rows) == submissions
    priorities = {} if live_section is None else dict.fromkeys(EVERY_PRIORITY, live_section)
    simulated: list[Event] = []
    record = simulate(
        SimulationInput("recorded", rows, run.fleet, run.tenants, catalog=Catalog(run.tables)),
        policy,
        settings,
        seed=1,
        sink=simulated.append,
    )

    async def scenario() -> list[Event]:
        async with Database(database_url) as database:
            service = await ServiceOnVirtualTime.open(
                database, run.fleet, run.tables, run.tenants, settings, rows[0].submit_s, window, priorities
            )
            events = await service.run(workloads_of(run, rows))
            assert service.passes == record.counts.scan_passes > 50
            return events

    live = asyncio.run(scenario())
    for ours, theirs in zip_longest(logged_by(simulated), logged_by(live)):
        assert ours == theirs
    waits_live = waiting(live)
    for workload, since_s in waiting(simulated).items():
        assert waits_live[workload] <= since_s, "the simulator logs what waits when it is the first of its kind"
    for events in (simulated, live):
        report = validate(
            [event.as_json() for event in events], run.fleet, run.tenants, tables=run.tables, complete=True
        )
        assert report.violations == 0, report.shown[:3]
        assert report.events_by_kind["dispatched"] > 150
        assert report.events_by_kind["evicting"] > 5 * WORK_FACTOR
        assert report.events_by_kind["reclassified"] > (100 if policy.levels is not None else 30)
        promotions = report.events_by_kind.get("promoted", 0)
        assert promotions == record.counts.promotions
        assert (promotions > 10) == (policy.levels is PROMOTING)
        assert report.events_by_kind["completed"] == len(rows)


def waiting(events: Sequence[Event]) -> dict[str | None, float]:
    """What was said to find no room, and when first."""
    logged: dict[str | None, float] = {}
    for event in events:
        if event.event is EventKind.WAITING:
            logged.setdefault(event.workload, event.t)
    return logged
