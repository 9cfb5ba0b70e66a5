"""A snapshot decided by the service's code and by the simulator: the same next decisions, and the same course from there on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
from domain.declared_cells import DeclaredCells, DeclaredMachines, DeclaredVirtualCluster
from domain.events import Event, EventKind
from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, ClusterId, JobName, TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.rank import Standing
from domain.resources import Quota, TaskResources
from domain.snapshot import QueuedWorkload, Snapshot
from domain.tenant import Tenant
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from formats.snapshot_file import dump_snapshot, parse_snapshot
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.snapshot_reader import load_snapshot
from simulator.baselines.mast import MAST
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import Simulation, simulate
from simulator.engine.simulation_input import SimulationInput
from tests.examples import examples
from tests.simulator.contract.decisions import DispatchDecision, Reclassified, ordered
from tests.simulator.contract.live_driver import LiveDriver
from tests.simulator.contract.recorded_run import key_of, placements_of, read_recorded_run, region_of, victims_of
from tests.simulator.contract.service_on_virtual_time import ServiceOnVirtualTime
from tests.simulator.contract.test_own_course import SETTINGS, logged_by, rows_of, workloads_of
from tests.simulator.engine.checked_run import V100, machine, region

WORLDS = 60
WORLDS_IN_CELLS = 150
"""More, for fewer of them evict."""
SAVE_S = 200.0
SLOW_TO_START = SimulationSettings(
    costs=CostSettings(container_start_s=40.0, checkpoint_save_s=SAVE_S, restore_s=15.0, checkpoint_interval_s=100.0),
    scan_period_s=0.0,
)
TENANTS = ("ads", "bio", "cars")


def random_snapshot(seed: int, *, in_cells: bool = False) -> Snapshot:
    """A crowd on two regions, broken off at some time: workloads of one and two jobs, some within quota, some leaving.

    `in_cells`: both regions are divided into cells, and the first two tenants own some of each.
    """
    rng = np.random.default_rng(seed)
    fleet = Fleet(
        (
            region("east", [machine(f"e{n}", 8) for n in range(2)], [machine("e-cpu", 0, cpus=32.0)]),
            region("west", [machine(f"w{n}", 4) for n in range(3)]),
        )
    )
    tenants = tuple(
        Tenant(TenantId(name), number, Quota.of({ANY_GPU_MODEL: int(rng.choice([4, 8, 16]))}))
        for number, name in enumerate(TENANTS)
    )
    if in_cells:
        fleet, tenants = _divided(fleet), tuple(map(_owning, tenants))
    workloads = [_workload(number, rng) for number in range(int(rng.integers(6, 30)))]
    declared = fleet_with_virtual_clusters(fleet, declarations_of(tenants))
    given = SimulationInput("random", (), declared, tenants, workloads=workloads)
    stopped = SLOW_TO_START.model_copy(update={"stop_after_s": float(rng.uniform(100.0, 900.0))})
    simulation = Simulation(given, MAST, stopped, seed)
    simulation.run()
    return parse_snapshot(dump_snapshot(simulation.snapshot()))


def _divided(fleet: Fleet) -> Fleet:
    return Fleet(
        tuple(
            replace(region, clusters=tuple(replace(cluster, mechanism="cells") for cluster in region.clusters))
            for region in fleet.regions
        )
    )


def _owning(tenant: Tenant) -> Tenant:
    east, west = ClusterId("east-c"), ClusterId("west-c")
    owned = {
        TENANTS[0]: (
            DeclaredVirtualCluster(east, machines=DeclaredMachines(8, 1)),
            DeclaredVirtualCluster(west, (DeclaredCells("machine", 1),)),
        ),
        TENANTS[1]: (
            DeclaredVirtualCluster(east, (DeclaredCells("gpu", 3),)),
            DeclaredVirtualCluster(west, machines=DeclaredMachines(4, 1)),
        ),
    }
    return replace(tenant, virtual_clusters=owned.get(str(tenant.tenant), ()))


def _workload(number: int, rng: np.random.Generator) -> Workload:
    work = Emulated(float(rng.uniform(50.0, 900.0)), float(rng.choice([0.0, 60.0])))
    gpus, tasks = ((1, 1), (2, 1), (4, 1), (8, 1), (4, 2), (2, 3))[int(rng.integers(6))]
    jobs = [JobSpecification(JobName("main"), tasks, TaskResources(gpus=gpus, gpu_model=V100), work)]
    if rng.random() < 0.35:
        jobs.append(JobSpecification(JobName("more"), 1, TaskResources(gpus=2, gpu_model=V100), work))
    tenant = TenantId(str(rng.choice(TENANTS, p=[0.2, 0.3, 0.5])))
    name = f"w{number:02}"
    specification = WorkloadSpecification(name, tenant, tuple(jobs), stop_grace_s=SAVE_S)
    return Workload(WorkloadId(name), specification, float(rng.uniform(0.0, 600.0)))


def first_decisions(snapshot: Snapshot) -> tuple[tuple[Reclassified, ...], tuple[DispatchDecision, ...], list[Event]]:
    """What the simulator decides at the moment of the snapshot, and what it says of ranks."""
    log: list[Event] = []
    settings_of_run = SLOW_TO_START.model_copy(update={"stop_after_s": 1e-3})
    simulation = Simulation(SimulationInput.of_snapshot(snapshot, "snapshot"), MAST, settings_of_run, 1, log.append)
    history = len(log)
    simulation.run()
    decided = list(_of_the_first_pass(log[history:]))
    reclassified = tuple(
        Reclassified(
            key_of(event), bool(event.details["within_quota"]), Standing(event.priority or 0, event.level or 0)
        )
        for event in decided
        if event.event is EventKind.RECLASSIFIED
    )
    dispatched = tuple(
        DispatchDecision(key_of(event).workload, region_of(event), ordered(placements_of(event)), victims_of(event))
        for event in decided
        if event.event is EventKind.DISPATCHED
    )
    return reclassified, dispatched, [event for event in decided if event.event is EventKind.RANKED]


def _of_the_first_pass(log: Sequence[Event]) -> Iterator[Event]:
    """Where a victim is gone at once, a second pass follows at the same moment: it begins by ranking the victim."""
    auctioned = False
    for event in log:
        if auctioned and event.event in (EventKind.RANKED, EventKind.RECLASSIFIED):
            return
        auctioned |= event.event is EventKind.DISPATCHED
        yield event


def assert_the_same_decisions(snapshot: Snapshot, window: int, what: str) -> Counter[str]:
    """How much of what was decided."""
    live = LiveDriver.of_snapshot(snapshot, window).decide(snapshot.taken_s)
    reclassified, dispatched, ranked = first_decisions(snapshot)
    assert set(reclassified) == set(live.reclassified), what
    assert dispatched == live.dispatched, what
    places = {position.workload: position for position in live.queue}
    for event in ranked:
        position = places[WorkloadId(str(event.workload))]
        said = (event.priority, event.level), event.details["credit"], event.details["within_quota"]
        assert said == (position.standing, position.credit, position.within_quota), what
    several = sum(1 for one in dispatched if len({placement.job for placement in one.placements}) > 1)
    leaving = sum(1 for attempt in snapshot.running if attempt.leaving is not None)
    return Counter(
        dispatched=len(dispatched),
        evictions=sum(len(one.evictions) for one in dispatched),
        several=several,
        leaving=leaving,
        ranked=len(ranked),
        reclassified=len(reclassified),
        waiting=len(live.waiting),
        running=len(snapshot.running),
    )


@pytest.mark.parametrize(
    ("window", "in_cells"),
    [
        pytest.param(1, False, id="1-packed"),
        pytest.param(8, False, id="8-packed"),
        pytest.param(1, True, id="1-in_cells", marks=pytest.mark.nightly),
        pytest.param(8, True, id="8-in_cells"),
    ],
)
def test_both_drivers_decide_alike_on_a_snapshot(window: int, in_cells: bool) -> None:
    counts: Counter[str] = Counter()
    for seed in range(WORLDS_IN_CELLS if in_cells else WORLDS):
        snapshot = _with_room_made(random_snapshot(seed, in_cells=in_cells), seed)
        what = f"random_snapshot({seed}, in_cells={in_cells}), window {window}"
        counts += assert_the_same_decisions(snapshot, window, what)
        counts["cells"] += sum(bool(attempt.cells) for attempt in snapshot.running)
    assert (counts["cells"] > 0) is in_cells
    for kind in ("dispatched", "evictions", "several", "leaving", "ranked", "waiting", "running"):
        assert counts[kind] >= 12, counts


@settings(max_examples=examples(25))
@given(st.integers(1_000, 2**32), st.integers(1, 20), st.booleans())
def test_never_another_decision_than_the_service_makes(seed: int, window: int, in_cells: bool) -> None:
    assert_the_same_decisions(_with_room_made(random_snapshot(seed, in_cells=in_cells), seed), window, "")


def _with_room_made(snapshot: Snapshot, seed: int) -> Snapshot:
    """The same moment with some attempts gone and some workloads more, so that there is something to decide."""
    rng = np.random.default_rng([seed, 1])
    needed: set[AttemptKey | None] = {attempt.leaving.by for attempt in snapshot.running if attempt.leaving is not None}
    kept = [attempt for attempt in snapshot.running if attempt.key in needed or rng.random() < 0.7]
    newcomers = tuple(
        QueuedWorkload(
            replace(_workload(90 + number, rng), submitted_s=snapshot.taken_s), State.PENDING, snapshot.taken_s
        )
        for number in range(4)
    )
    return replace(snapshot, running=tuple(kept), queue=snapshot.queue + newcomers)


def test_the_course_after_a_snapshot_is_that_of_the_service(database_url: str) -> None:
    """The service runs on PostgreSQL; in the middle its database is read in one transaction, and it goes on. The
    simulator goes on from what was read: every rank, dispatch, start, eviction and end, with its time, is the same.
    """
    run = read_recorded_run()
    rows = rows_of(run, 2.0)
    middle_s = rows[len(rows) // 2].submit_s
    taken: list[Snapshot] = []

    async def scenario() -> list[Event]:
        async with Database(database_url) as database:
            service = await ServiceOnVirtualTime.open(
                database, run.fleet, run.tables, run.tenants, SETTINGS, rows[0].submit_s, 8
            )

            async def look(now: float) -> None:
                async def load(connection: AnyConnection) -> Snapshot:
                    return await load_snapshot(connection, now)

                if now >= middle_s and not taken:
                    taken.append(await database.run(load, snapshot=True))

            return await service.run(workloads_of(run, rows), look)

    live = asyncio.run(scenario())
    (snapshot,) = taken
    assert len(snapshot.running) > 10
    assert len(snapshot.queue) > 5
    snapshot = parse_snapshot(dump_snapshot(snapshot))
    later = [workload for workload in workloads_of(run, rows) if workload.submitted_s > snapshot.taken_s]
    simulated: list[Event] = []
    simulate(
        SimulationInput.of_snapshot(snapshot, "snapshot", workloads=later),
        MAST,
        SETTINGS,
        seed=1,
        sink=simulated.append,
    )
    ours, theirs = _after(simulated, snapshot), _after(live, snapshot)
    assert len(theirs) > 300
    for mine, its in zip_longest(logged_by(ours), logged_by(theirs)):
        assert mine == its


def _after(events: Sequence[Event], snapshot: Snapshot) -> list[Event]:
    """What follows from the decisions at that moment; submissions at that very moment came before them."""
    there = {workload.workload for workload in snapshot.workloads()}
    before = {EventKind.SUBMITTED, EventKind.EVICTED, EventKind.COMPLETED, EventKind.STARTED}
    return [
        event
        for event in events
        if event.t > snapshot.taken_s
        or (event.t == snapshot.taken_s and not (event.event in before and event.workload in there))
    ]
