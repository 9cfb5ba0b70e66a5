"""Attempts that were resized, leave, or migrate when a snapshot is taken: they go on as if there had been none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from domain.events import EvictionCause
from domain.fleet import Fleet
from domain.identifiers import RegionId, TenantId, WorkloadId
from domain.life_cycle import State
from domain.snapshot import Leaving, Snapshot
from formats.problems import FormatError
from formats.snapshot_file import dump_snapshot, parse_snapshot, snapshot_document
from formats.trace import TraceRow
from formats.trace_workload import JOB_NAME
from global_scheduler.levels.attained_service import AttainedService
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.actions import ActionAt, MigrateAt, ResizeAt
from simulator.policies.policy import Policy
from simulator.policies.registry import policies
from simulator.results.conservation import check_conservation
from simulator.validate import validate
from tests.simulator.engine.checked_run import Record, machine, region, row, unlimited

W = WorkloadId("w")
SAVING_20_S = SimulationSettings(
    costs=CostSettings(container_start_s=0.0, checkpoint_save_s=20.0, restore_s=0.0, checkpoint_interval_s=0.0)
)
FLEET = Fleet((region("east", [machine("e0", 4), machine("e1", 4)]), region("west", [machine("w0", 4)])))
FIFO = policies()["fifo"]
LAS = replace(FIFO, name="fifo_las", levels=AttainedService((500.0,)))
ELASTIC = TraceRow(W, TenantId("t"), 0.0, 400.0, 1, tasks=1, min_tasks=1, max_tasks=4)
ROWS = [ELASTIC, row("x", 5.0, 1000.0, 3)]
GROWN = ResizeAt(20.0, W, JOB_NAME, 4)


def run(given: SimulationInput, policy: Policy, after_s: float = 0.0) -> tuple[Simulation, list[Record]]:
    log: list[Record] = []
    settings = SAVING_20_S.model_copy(update={"check_every_events": 1, "stop_after_s": after_s})
    simulation = Simulation(given, policy, settings, 1, lambda event: log.append(event.as_json()))
    record = simulation.run()
    assert not record.counts.invariants_broken
    check_conservation(record)
    return simulation, log


def later(log: list[Record], than_s: float) -> list[Record]:
    told = ("dispatched", "started", "evicted", "reclassified", "completed")
    return [event for event in log if float(str(event["t"])) > than_s and event["event"] in told]


def taken_at(after_s: float, policy: Policy, *actions: ActionAt) -> tuple[Snapshot, list[Record]]:
    """The snapshot then, and the log of the whole run."""
    given = SimulationInput("test", ROWS, FLEET, unlimited(ROWS), actions=actions)
    _, whole = run(given, policy)
    broken_off, _ = run(given, policy, after_s)
    return parse_snapshot(dump_snapshot(broken_off.snapshot())), whole


@pytest.mark.parametrize("policy", [FIFO, LAS], ids=lambda policy: policy.name)
@pytest.mark.parametrize(
    ("actions", "after_s"),
    [
        ([GROWN], 30.0),
        ([GROWN], 150.0),
        ([GROWN, ResizeAt(50.0, W, JOB_NAME, 2)], 60.0),
        ([GROWN, MigrateAt(40.0, W, RegionId("west"))], 45.0),
        ([GROWN, MigrateAt(40.0, W, RegionId("west"))], 70.0),
    ],
)
def test_a_grown_attempt_goes_on_at_its_speed_with_what_it_holds_and_has_attained(
    policy: Policy, actions: list[ActionAt], after_s: float
) -> None:
    snapshot, whole = taken_at(after_s, policy, *actions)
    _, resumed = run(SimulationInput.of_snapshot(snapshot, "test"), policy)
    assert later(resumed, after_s) == later(whole, after_s)
    report = validate(resumed, FLEET, unlimited(ROWS), complete=True)
    assert report.valid, str(report)


def test_a_migrating_attempt_finds_the_place_that_is_kept_for_it() -> None:
    """It was asked to leave at 40 and saves until 60."""
    (first,) = [attempt.region for attempt in taken_at(30.0, FIFO)[0].running if attempt.key.workload == "x"]
    other = RegionId("west" if first == "east" else "east")
    snapshot, whole = taken_at(45.0, FIFO, MigrateAt(40.0, WorkloadId("x"), other))
    (moving,) = [attempt for attempt in snapshot.running if attempt.next_place is not None]
    assert moving.next_place is not None
    assert moving.next_place.region == other
    _, resumed = run(SimulationInput.of_snapshot(snapshot, "test"), FIFO)
    assert later(resumed, 45.0) == later(whole, 45.0)
    # A service may have kept the place, and not have asked the attempt to leave yet.
    not_asked = replace(moving, leaving=None, state=State.RUNNING, changed=None)
    running = tuple(not_asked if attempt == moving else attempt for attempt in snapshot.running)
    _, resumed = run(SimulationInput.of_snapshot(replace(snapshot, running=running), "test"), FIFO)
    (evicted,) = [event for event in resumed if event["event"] == "evicted"]
    assert (evicted["t"], evicted["cause"], evicted["successor"]) == (65.0, "migrated", 2)


@pytest.mark.parametrize("cause", sorted(set(EvictionCause) - {EvictionCause.PREEMPTED}))
def test_an_attempt_that_leaves_for_any_cause_is_gone_soon(cause: EvictionCause) -> None:
    snapshot, _ = taken_at(30.0, FIFO)
    (leaves,) = [attempt for attempt in snapshot.running if attempt.key.workload == W]
    limited = replace(leaves.workload, specification=replace(leaves.workload.specification, max_time_s=3_600.0))
    workload = limited if cause is EvictionCause.TIME_LIMIT else leaves.workload
    leaving = replace(leaves, workload=workload, state=State.PREEMPTING, leaving=Leaving(cause, None, None))
    running = tuple(leaving if attempt == leaves else attempt for attempt in snapshot.running)
    _, resumed = run(SimulationInput.of_snapshot(replace(snapshot, running=running), "test"), FIFO)
    its_own = [event["event"] for event in resumed if event.get("workload") == W]
    if cause in {EvictionCause.CANCELLED, EvictionCause.TIME_LIMIT}:
        assert its_own[-2:] == ["evicting", "cancelled" if cause is EvictionCause.CANCELLED else "failed"]
    else:
        assert its_own[3:5] == ["evicting", "evicted"]
        assert its_own[-1] == "completed"
    if cause is EvictionCause.TIME_LIMIT:
        (evicting,) = [event for event in resumed if event["event"] == "evicting" and event.get("workload") == W]
        (failed,) = [event for event in resumed if event["event"] == "failed" and event.get("workload") == W]
        assert (evicting["limit_s"], failed["reason"]) == (3_600.0, "time limit of 1h reached")
    if cause in {EvictionCause.CANCELLED, EvictionCause.RECLAIMED, EvictionCause.CHANGE_REFUSED}:
        report = validate(resumed, FLEET, unlimited(ROWS), complete=True)
        assert report.valid, str(report)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            ("changed",),
            {"to_s": 1.0, "progress": -1.0, "gpu_s": 0.0},
            r"running\[0\].changed.progress: must be at least 0",
        ),
        (("started_s",), None, r"running\[0\].changed: must not be there without started_s"),
        (("next_place",), {"region": "mars", "placements": []}, r"running\[0\].next_place.placements"),
    ],
)
def test_what_is_wrong_is_named(path: tuple[str, ...], value: object, problem: str) -> None:
    snapshot, _ = taken_at(30.0, FIFO, GROWN)
    document: dict[str, Any] = json.loads(json.dumps(snapshot_document(snapshot)))
    document["running"][0][path[0]] = value
    with pytest.raises(FormatError, match=problem):
        parse_snapshot(json.dumps(document))


def test_a_place_in_an_unknown_region_and_on_an_unknown_machine_is_refused() -> None:
    snapshot, _ = taken_at(45.0, FIFO, MigrateAt(40.0, W, RegionId("west")), GROWN)
    document: dict[str, Any] = json.loads(json.dumps(snapshot_document(snapshot)))
    (place,) = [attempt["next_place"] for attempt in document["running"] if attempt["next_place"]]
    place["region"], place["placements"][0]["machine"] = "mars", "m9"
    with pytest.raises(FormatError, match=r"next_place.region: there is no region mars(.|\n)*no machine m9"):
        parse_snapshot(json.dumps(document))
