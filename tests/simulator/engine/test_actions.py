"""Actions on running workloads, on virtual time: worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

from domain.events import Event, EventKind
from domain.fleet import Fleet
from domain.identifiers import AttemptNumber, ClusterId, RegionId, TenantId, WorkloadId
from domain.placement import Score, TaskPlacement
from domain.placement_changes import name_of
from domain.plan import Plan, ScaleIn, Start, reclaim_class
from domain.rank import QueuePosition
from formats.trace import TraceRow
from formats.trace_workload import JOB_NAME
from regional_scheduler.rounds import Lot
from simulator.engine.attempts import Attempts
from simulator.engine.failures import FailureDomain, Failures
from simulator.engine.regions import Win
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.engine.world import World
from simulator.inputs.actions import ActionAt, MigrateAt, ResizeAt, RetuneAt
from simulator.policies.registry import policies
from simulator.results.conservation import violated_laws
from simulator.validate import validate
from tests.simulator.engine.checked_run import CheckedRun, Record, checked_run, machine, region, row, unlimited
from tests.simulator.log_builder import entries, items

FIFO = policies()["fifo"]
W = WorkloadId("w")
COSTS = SimulationSettings(
    costs=CostSettings(container_start_s=10.0, checkpoint_save_s=5.0, restore_s=3.0, checkpoint_interval_s=0.0)
)
FLEET_OF_TWO = (region("east", [machine("e0", 4), machine("e1", 4)]), region("west", [machine("w0", 4)]))


def elastic(duration_s: float) -> TraceRow:
    """One task of one GPU, up to four."""
    return TraceRow(
        workload_id=W,
        tenant=TenantId("t"),
        submit_s=0.0,
        duration_s=duration_s,
        gpus=1,
        tasks=1,
        min_tasks=1,
        max_tasks=4,
        region=RegionId("east"),
    )


def run_with(rows: list[TraceRow], *actions: ActionAt, settings: SimulationSettings = COSTS) -> CheckedRun:
    return checked_run(FIFO, rows, Fleet(FLEET_OF_TWO), settings=settings, actions=actions)


def events_of(run: CheckedRun, *kinds: str) -> list[Record]:
    return [record for record in run.log if record["event"] in kinds]


def test_twice_the_tasks_do_the_rest_in_half_the_time() -> None:
    """100 s of work start at 10; half is done at 60; with four tasks the other half takes 12.5 s; with two again 25."""
    grown = run_with([elastic(100.0)], ResizeAt(60.0, W, JOB_NAME, 4))
    assert grown.ends() == {"w": 72.5}
    back = run_with([elastic(100.0)], ResizeAt(60.0, W, JOB_NAME, 4), ResizeAt(62.5, W, JOB_NAME, 2))
    # 50 done at 60, 60 done at 62.5, and 40 at twice the speed.
    assert back.ends() == {"w": 82.5}
    assert [record["speed"] for record in events_of(back, "resized")] == [4.0, 2.0]


def test_what_was_scaled_in_can_be_used_at_once() -> None:
    waiting = replace(row("x", 30.0, 10.0, 4), region=RegionId("east"))
    other = replace(row("y", 0.0, 500.0, 4), region=RegionId("east"))
    run = run_with([elastic(100.0), other, waiting], ResizeAt(20.0, W, JOB_NAME, 4), ResizeAt(50.0, W, JOB_NAME, 1))
    # w holds all of its machine from 20 on and y the other: x waits until w is gone.
    assert run.starts()["x"] >= run.ends()["w"]
    small = replace(row("x", 30.0, 10.0, 3), region=RegionId("east"))
    run = run_with([elastic(400.0), other, small], ResizeAt(20.0, W, JOB_NAME, 4), ResizeAt(30.0, W, JOB_NAME, 1))
    assert run.starts()["x"] == 40.0


def test_a_retune_changes_what_is_held_and_not_how_fast_it_is() -> None:
    run = run_with([elastic(100.0)], RetuneAt(50.0, W, JOB_NAME, cpus=20.0, memory_gib=10.0))
    assert run.ends() == {"w": 110.0}
    (tuned,) = events_of(run, "tuned")
    placement = tuned["placement"]
    assert isinstance(placement, list)
    assert isinstance(placement[0], dict)
    assert (placement[0]["cpus"], placement[0]["memory_gib"]) == (20.0, 10.0)


def test_what_a_retune_gets_more_is_not_taken_from_an_attempt_that_is_still_saving_its_work() -> None:
    """y holds 36 of the 48 CPUs until 65; w, which holds 8, is to have 24 from 62 on."""
    asked = replace(elastic(200.0), cpus=8.0)
    other = replace(row("y", 0.0, 500.0, 3), cpus=36.0, region=RegionId("east"))
    run = run_with(
        [asked, other],
        MigrateAt(60.0, WorkloadId("y"), RegionId("east")),
        RetuneAt(62.0, W, JOB_NAME, cpus=24.0),
        RetuneAt(63.0, W, JOB_NAME, cpus=10.0),
        RetuneAt(70.0, W, JOB_NAME, cpus=10.0),
    )
    # The change of 62 waits for y, and the one of 63 is refused as long as it does.
    assert [(event["t"], _cpus(event)) for event in events_of(run, "tuned")] == [(65.0, 24.0), (70.0, 10.0)]


def test_a_change_that_waits_is_forgotten_when_its_attempt_leaves() -> None:
    asked = replace(elastic(200.0), cpus=8.0)
    other = replace(row("y", 0.0, 500.0, 3), cpus=36.0, region=RegionId("east"))
    run = run_with(
        [asked, other],
        MigrateAt(60.0, WorkloadId("y"), RegionId("east")),
        RetuneAt(62.0, W, JOB_NAME, cpus=24.0),
        MigrateAt(63.0, W, RegionId("east")),
    )
    assert events_of(run, "tuned") == []


class FailsAt(Failures):
    """The machine at that place of the first region fails once, at that time."""

    def __init__(self, place: int, fails_s: float) -> None:
        super().__init__([FailureDomain("machine", ((0, place),), 1.0, 1.0)], seed=1)
        self._fails_s = fails_s

    def next_failure_s(self, domain: int, now: float) -> float:
        return self._fails_s if now < self._fails_s else math.inf

    def next_repair_s(self, domain: int, now: float) -> float:
        return now + 1000.0


def grows_where_another_one_leaves(fails: Failures) -> CheckedRun:
    """`w` is alone on its machine but for `x`, and is to have another task on the next one from 72 on, which `y`
    leaves until 75 for the third one."""
    rows = [
        elastic(200.0),
        replace(row("x", 1.0, 1000.0, 3), region=RegionId("east")),
        replace(row("y", 2.0, 500.0, 3), region=RegionId("east")),
        replace(row("z", 3.0, 50.0, 4), region=RegionId("east")),
    ]
    fleet = Fleet((region("east", [machine(f"e{number}", 4) for number in range(3)]),))
    actions = (MigrateAt(70.0, WorkloadId("y"), RegionId("east")), ResizeAt(72.0, W, JOB_NAME, 2))
    return checked_run(FIFO, rows, fleet, settings=COSTS, actions=actions, failures=fails)


def test_an_attempt_goes_on_when_a_machine_is_lost_where_it_was_only_to_hold_something() -> None:
    grown = grows_where_another_one_leaves(FailsAt(1, math.inf))
    assert [record["t"] for record in events_of(grown, "resized")] == [75.0]
    run = grows_where_another_one_leaves(FailsAt(1, 73.0))
    assert events_of(run, "resized") == []
    (refused,) = events_of(run, "change_refused")
    assert (refused["t"], refused["workload"], refused["change"]) == (73.0, "w", "resized")
    assert refused["reason"] == "machine e1, where it was to hold more, is lost: machine failed"
    assert run.ends()["w"] == 210.0
    assert "w" not in {record["workload"] for record in events_of(run, "evicted")}


def test_an_attempt_is_lost_with_the_machine_where_it_holds_something_though_it_was_to_hold_more_elsewhere() -> None:
    run = grows_where_another_one_leaves(FailsAt(0, 73.0))
    lost = {(record["workload"], record["cause"]) for record in events_of(run, "evicted")}
    assert {("w", "machine_lost"), ("x", "machine_lost")} <= lost
    assert events_of(run, "change_refused") == []


def test_what_a_retune_gives_up_is_given_up_at_once() -> None:
    asked = replace(elastic(200.0), cpus=8.0, memory_gib=60.0)
    other = replace(row("y", 0.0, 500.0, 3), cpus=36.0, memory_gib=20.0, region=RegionId("east"))
    run = run_with(
        [asked, other],
        MigrateAt(60.0, WorkloadId("y"), RegionId("east")),
        RetuneAt(62.0, W, JOB_NAME, cpus=24.0, memory_gib=40.0),
    )
    tuned = [(event["t"], _cpus(event), _placement(event)["memory_gib"]) for event in events_of(run, "tuned")]
    assert tuned == [(62.0, 8.0, 40.0), (65.0, 24.0, 40.0)]


def _placement(event: Record) -> Record:
    placement = event["placement"]
    assert isinstance(placement, list)
    (only,) = placement
    assert isinstance(only, dict)
    return only


def _cpus(event: Record) -> object:
    return _placement(event)["cpus"]


def test_a_migration_costs_a_save_a_start_and_a_restore_and_keeps_its_work() -> None:
    """50 s of 100 are done at 60; it saves until 65, starts until 75, restores until 78, and has 50 s left."""
    run = run_with([elastic(100.0)], MigrateAt(60.0, W, RegionId("east")))
    assert run.ends() == {"w": 128.0}
    kinds = [record["event"] for record in run.log if record.get("workload") == "w"]
    assert kinds == ["submitted", "dispatched", "started", "evicting", "evicted", "dispatched", "started", "completed"]
    (evicted,) = events_of(run, "evicted")
    assert (evicted["cause"], evicted["successor"], evicted["checkpoint_progress"]) == ("migrated", 2, 50.0)
    machines = [record["placement"] for record in events_of(run, "started")]
    assert machines[0] != machines[1]


def test_what_goes_on_elsewhere_has_what_was_submitted_again() -> None:
    """Resizes and retunes are of one attempt: the next one begins with its base tasks and the amounts asked for."""
    run = run_with(
        [elastic(400.0)],
        ResizeAt(20.0, W, JOB_NAME, 4),
        RetuneAt(30.0, W, JOB_NAME, cpus=2.0),
        MigrateAt(60.0, W, RegionId("east")),
    )
    first, second = (items(record["placement"]) for record in events_of(run, "started"))
    tuned = next(items(record["placement"]) for record in events_of(run, "tuned"))
    assert (len(first), len(tuned), len(second)) == (1, 4, 1)
    assert [{**entry, "machine": ""} for entry in entries(first)] == [
        {**entry, "machine": ""} for entry in entries(second)
    ]


def test_a_workload_may_go_on_in_another_region() -> None:
    anywhere = row("w", 0.0, 100.0, 4)
    there = run_with([anywhere])
    first = next(iter(events_of(there, "started")))["region"]
    other = "west" if first == "east" else "east"
    run = run_with([anywhere], MigrateAt(60.0, W, RegionId(other), ClusterId(f"{other}-c")))
    assert [record["region"] for record in events_of(run, "started")] == [first, other]
    assert run.ends() == {"w": 128.0}


def test_what_is_not_possible_is_left_alone() -> None:
    run = run_with(
        [elastic(100.0)],
        ResizeAt(5.0, W, JOB_NAME, 2),
        ResizeAt(50.0, W, JOB_NAME, 5),
        RetuneAt(50.0, W, JOB_NAME, cpus=1000.0),
        MigrateAt(50.0, W, RegionId("west")),
        MigrateAt(500.0, W, RegionId("east")),
    )
    assert run.ends() == {"w": 110.0}
    assert events_of(run, "resized", "tuned", "evicted") == []


def test_a_won_plan_may_scale_in_what_runs_to_make_room_for_its_workload() -> None:
    """`w` has four GPUs from 20 on and gives two up for `x` at 30, which evicts nothing: it has started 10 s later."""
    rows = [elastic(100.0), replace(row("x", 30.0, 20.0, 2), region=RegionId("east"))]
    log: list[Event] = []

    def take(event: Event) -> None:
        log.append(event)
        if event.event is EventKind.RESIZED and not any(one.event is EventKind.DISPATCHED for one in log[2:]):
            win_by_scaling_in(simulation.world)

    fleet = Fleet((region("east", [machine("e0", 4)]),))
    given = SimulationInput("test", rows, fleet, unlimited(rows), actions=(ResizeAt(30.0, W, JOB_NAME, 4),))
    settings = COSTS.model_copy(update={"check_every_events": 1})
    simulation = Simulation(given, FIFO, settings, 1, take)
    assert violated_laws(simulation.run()) == []
    report = validate([event.as_json() for event in log], given.fleet, given.tenants, complete=True)
    assert report.valid, str(report)
    told = [(event.t, event.event.value, str(event.workload)) for event in log]
    # 20 s of 100 are done at 30; two tasks do the other 80 in 40 s.
    assert told[2:] == [
        (10.0, "started", "w"),
        (30.0, "submitted", "x"),
        (30.0, "resized", "w"),
        (30.0, "dispatched", "x"),
        (30.0, "resized", "w"),
        (40.0, "started", "x"),
        (60.0, "completed", "x"),
        (70.0, "completed", "w"),
    ]


def win_by_scaling_in(world: World) -> None:
    """A plan that no policy makes so far: the two last tasks of `w` go, and `x` starts on their GPUs."""
    w, x = world.by_name[W], world.by_name[WorkloadId("x")]
    holding = world.regions.members[0].inventory.holding(w.key)
    assert holding is not None
    gone = holding.placements[2:]
    place = TaskPlacement(
        JOB_NAME, 0, gone[0].cluster, gone[0].machine, (*gone[0].gpu_indices, *gone[1].gpu_indices), 1000, 1024
    )
    actions = (ScaleIn(w.key, tuple(name_of(placement) for placement in gone)), Start((place,)))
    position = QueuePosition(x.workload.workload, x.standing, 0.0, x.submitted_s, within_quota=True)
    plan = Plan(x.workload.workload, RegionId("east"), actions, Score(reclaim_class=reclaim_class(actions)))
    Attempts(world).dispatch(x, Win(0, plan, Lot(x.workload, position, AttemptNumber(1))))
