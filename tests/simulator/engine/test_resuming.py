"""Runs that begin in the middle: they go on as the run would have gone on whose snapshot they begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.catalog import Catalog
from domain.events import Event, EventKind, JsonValue
from domain.fleet import Fleet, MachineState
from domain.identifiers import JobName, MachineId, TenantId, WorkloadId
from domain.resources import TaskResources
from domain.snapshot import Snapshot
from domain.tenant import Tenant
from domain.workload import Command, Emulated, JobSpecification, Workload, WorkloadSpecification
from formats.problems import FormatError
from formats.scheduler_file import EvictionSection
from formats.snapshot_file import dump_snapshot, parse_snapshot
from formats.trace import TraceRow
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.registry import policy_called
from simulator.results.conservation import check_conservation
from simulator.results.run_record import RunRecord, WorkloadEnd
from simulator.validate import validate
from tests.examples import examples
from tests.simulator.engine.checked_run import V100, machine, one_region, region, row, unlimited
from tests.simulator.engine.small_worlds import SmallWorld, crowded_worlds, small_worlds

AT_ONCE = SimulationSettings(
    costs=CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0, checkpoint_interval_s=0.0),
    scan_period_s=0.0,
)
SOME_COSTS = SimulationSettings(
    costs=CostSettings(container_start_s=40.0, checkpoint_save_s=20.0, restore_s=15.0, checkpoint_interval_s=100.0),
    scan_period_s=0.0,
)
BOUNDED = AT_ONCE.model_copy(update={"eviction": EvictionSection(minimum_run_time_s=300.0)})
ONCE_AN_HOUR = AT_ONCE.model_copy(update={"eviction": EvictionSection(evictions_per_workload_and_hour=1)})


def run(
    given: SimulationInput, policy: str, run_settings: SimulationSettings
) -> tuple[RunRecord, list[Event], Simulation]:
    """A run, its log, and the simulation as it ended."""
    log: list[Event] = []
    simulation = Simulation(given, policy_called(policy), run_settings, 1, log.append)
    return simulation.run(), log, simulation


def broken_off_at(world: SmallWorld, policy: str, after_s: float) -> tuple[Snapshot, list[TraceRow], list[Event]]:
    """What there is after so many seconds, what is submitted later, and the log of the whole run."""
    tenants = world.tenants if policy_called(policy).scans else unlimited(world.rows)
    given = SimulationInput("test", world.rows, world.fleet, tenants, catalog=Catalog(world.tables))
    _, whole, _ = run(given, policy, world.settings)
    stopped = world.settings.model_copy(update={"stop_after_s": after_s})
    _, _, simulation = run(given, policy, stopped)
    snapshot = simulation.snapshot()
    return snapshot, [row for row in world.rows if row.submit_s > snapshot.taken_s], whole


def later(log: Sequence[Event], than_s: float) -> list[Mapping[str, JsonValue]]:
    """Dispatches, starts, evictions and ends after that time. Why one waits is said once in each run, and which of two
    attempts that start at one instant is named first means nothing."""
    told = (EventKind.DISPATCHED, EventKind.STARTED, EventKind.EVICTED, EventKind.COMPLETED)
    found = [event for event in log if event.t > than_s and event.event in told]
    found.sort(key=lambda event: (event.t, event.event, event.workload or ""))
    return [event.as_json() for event in found]


@pytest.mark.parametrize(
    ("policy", "run_settings"),
    [
        ("fifo", SOME_COSTS),
        ("sjf", SOME_COSTS),
        ("srtf", AT_ONCE),
        ("las", AT_ONCE),
        ("fifo", AT_ONCE),
        ("srtf", BOUNDED),
        ("srtf", ONCE_AN_HOUR),
    ],
)
@settings(max_examples=examples(25))
@given(world=crowded_worlds(), after_s=st.sampled_from((35.0, 205.0, 415.0, 1005.0, 3005.0)))
def test_never_another_course_after_a_snapshot(
    policy: str, run_settings: SimulationSettings, world: SmallWorld, after_s: float
) -> None:
    """To the last event, its time and its GPUs: the run goes on as if nobody had stopped it."""
    snapshot, rows, whole = broken_off_at(replace(world, settings=run_settings), policy, after_s)
    if not snapshot.workloads() and not rows:
        return
    snapshot = parse_snapshot(dump_snapshot(snapshot))
    _, resumed, _ = run(SimulationInput.of_snapshot(snapshot, "test", rows), policy, run_settings)
    assert later(resumed, snapshot.taken_s) == later(whole, snapshot.taken_s)


@pytest.mark.parametrize("policy", ["mast", "las", "srtf", "yarn_cs", "conservative_backfill", "own_region", "drf"])
@settings(max_examples=examples(15))
@given(world=small_worlds(), after_s=st.floats(1.0, 3000.0))
def test_never_a_resumed_run_that_breaks_an_invariant(policy: str, world: SmallWorld, after_s: float) -> None:
    """With costs, failures, several regions and tables: log, tables and inventories are in order, and all ends."""
    snapshot, rows, _ = broken_off_at(world, policy, after_s)
    if not snapshot.workloads() and not rows:
        return
    # Failures are drawn anew: a machine that is down at the snapshot would stay so.
    snapshot = replace(snapshot, machine_states={})
    record, log, simulation = run(SimulationInput.of_snapshot(snapshot, "test", rows), policy, world.settings)
    check_conservation(record)
    for member in simulation.world.regions.members:
        member.inventory.check()
    ends = set(record.workloads.end.tolist())
    waits_for_data = ends & {WorkloadEnd.QUEUED, WorkloadEnd.RUNNING}
    if ends != {WorkloadEnd.REFUSED}:
        report = validate(
            [event.as_json() for event in log],
            snapshot.fleet,
            snapshot.tenants,
            tables=snapshot.tables,
            complete=not waits_for_data,
        )
        assert report.valid, str(report)


def two_jobs(name: str, submitted_s: float, duration_s: float, tenant: str = "t") -> Workload:
    """Two machines' worth of training beside a job of eight CPUs that ends earlier."""
    jobs = (
        JobSpecification(JobName("main"), 2, TaskResources(gpus=3, gpu_model=V100), Emulated(duration_s)),
        JobSpecification(JobName("readers"), 1, TaskResources(cpus=8.0, memory_gib=8.0), Emulated(duration_s / 2)),
    )
    return Workload(WorkloadId(name), WorkloadSpecification(name, TenantId(tenant), jobs), submitted_s)


def test_workloads_of_several_jobs_run_as_gangs() -> None:
    """The longest job says how long it takes; the gang holds everything until then."""
    workloads = [two_jobs("a", 0.0, 100.0), two_jobs("b", 0.0, 50.0)]
    given = SimulationInput("test", (), one_region(2, 4), unlimited([row("x", 0.0, 1.0)]), workloads=workloads)
    record, log, _ = run(given, "fifo", AT_ONCE)
    assert record.workloads.ended_s.tolist() == [100.0, 150.0]
    report = validate([event.as_json() for event in log], given.fleet, given.tenants, complete=True)
    assert report.valid, str(report)


def _snapshot_with_a_process() -> Snapshot:
    """One workload of a program, running since its beginning; taken at 1000 s."""
    fleet = Fleet((region("r", [machine("m0", 4)]),))
    job = JobSpecification(JobName("main"), 1, TaskResources(gpus=4, gpu_model=V100), Command(("python", "train.py")))
    workload = Workload(WorkloadId("w"), WorkloadSpecification("w", TenantId("t"), (job,)), 0.0)
    tenants: tuple[Tenant, ...] = unlimited([row("w", 0.0, 1.0)])
    given = SimulationInput(
        "test", (), fleet, tenants, workloads=[replace(workload, specification=_emulated(workload.specification))]
    )
    _, _, simulation = run(given, "fifo", AT_ONCE.model_copy(update={"stop_after_s": 1000.0}))
    taken = simulation.snapshot()
    running = tuple(replace(attempt, workload=workload) for attempt in taken.running)
    return replace(taken, running=running)


def _emulated(specification: WorkloadSpecification) -> WorkloadSpecification:
    return replace(specification, jobs=tuple(replace(job, entry_point=Emulated(5000.0)) for job in specification.jobs))


def test_who_is_not_emulated_needs_the_default_duration_from_the_snapshot_on() -> None:
    snapshot = _snapshot_with_a_process()
    with pytest.raises(FormatError, match=r"1 of 1 workloads are not emulated, such as w: .*--default-duration"):
        run(SimulationInput.of_snapshot(snapshot, "test"), "fifo", AT_ONCE)
    record, _, _ = run(SimulationInput.of_snapshot(snapshot, "test", default_duration_s=600.0), "fifo", AT_ONCE)
    assert record.workloads.ended_s.tolist() == [1600.0]


def test_a_machine_that_was_down_stays_down() -> None:
    snapshot = _snapshot_with_a_process()
    fleet = Fleet((region("r", [machine("m0", 4), machine("m1", 4)]),))
    snapshot = replace(snapshot, fleet=fleet, machine_states={MachineId("m1"): MachineState.DRAINING})
    rows = [row("x", 1001.0, 10.0, 4)]
    record, _, _ = run(SimulationInput.of_snapshot(snapshot, "test", rows, default_duration_s=600.0), "fifo", AT_ONCE)
    assert record.workloads.ended_s.tolist() == [1600.0, 1610.0]


def test_bad_snapshots_are_refused_with_the_field() -> None:
    snapshot = _snapshot_with_a_process()
    (attempt,) = snapshot.running
    smaller = Fleet((region("r", [machine("m0", 2)]),))
    cases: list[tuple[Snapshot, Sequence[TraceRow], str]] = [
        (replace(snapshot, fleet=smaller), (), r"running\[0\].placements: w: "),
        (replace(snapshot, tenants=()), (), r"running\[0\]: tenant t is not among the tenants"),
        (replace(snapshot, running=()), (), "queue: is empty, nothing runs"),
        (snapshot, [row("x", 999.0, 1.0)], "submit_s: x is submitted before the snapshot was taken"),
        (snapshot, [row("w", 1001.0, 1.0)], "workload_id: w is there twice"),
        (replace(snapshot, running=(attempt, attempt)), (), r"running\[1\]: workload w is already at running\[0\]"),
    ]
    for bad, rows, problem in cases:
        with pytest.raises(FormatError, match=problem):
            run(SimulationInput.of_snapshot(bad, "test", rows, default_duration_s=1.0), "fifo", AT_ONCE)
