"""Places that are kept for migrating attempts, and what becomes of them when machines are lost or taken back."""

from __future__ import annotations

from domain.fleet import Fleet
from domain.identifiers import RegionId, WorkloadId
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.inputs.actions import MigrateAt
from simulator.policies.registry import policies
from tests.simulator.engine.checked_run import CheckedRun, Record, checked_run, machine, region, row
from tests.simulator.engine.test_loans import fleet as fleet_with_inference
from tests.simulator.engine.test_loans import lending
from tests.simulator.scenarios.scenario_run import scripted
from tests.simulator.scenarios.scenario_text import ScriptedFailure

FIFO = policies()["fifo"]
W = WorkloadId("w")
SAVING_20_S = SimulationSettings(
    costs=CostSettings(container_start_s=0.0, checkpoint_save_s=20.0, restore_s=0.0, checkpoint_interval_s=0.0)
)


def events_of(run: CheckedRun, kind: str) -> list[Record]:
    return [event for event in run.log if event["event"] == kind]


def test_a_machine_lost_under_a_migrating_attempt_loses_its_next_place_too() -> None:
    """w saves its work from 50 on, to go on on e1: e0 fails at 60, and nothing of it is kept. As in a service."""
    fleet = Fleet((region("east", [machine("e0", 1), machine("e1", 1)]),))
    failing = [ScriptedFailure("machine e0", 60.0, 500.0), ScriptedFailure("machine e1", 9_999.0, 1.0)]
    run = checked_run(
        FIFO,
        [row("w", 0.0, 100.0, 1)],
        fleet,
        settings=SAVING_20_S,
        failures=scripted(fleet, failing),
        actions=[MigrateAt(50.0, W, RegionId("east"))],
    )
    (evicted,) = events_of(run, "evicted")
    assert (evicted["t"], evicted["cause"], evicted["checkpoint_progress"]) == (60.0, "machine_lost", 0.0)
    assert "successor" not in evicted
    assert run.ends() == {"w": 160.0}


def test_a_machine_on_loan_with_a_reserved_place_is_handed_back_at_once() -> None:
    """w runs on t0 and is to go on on s0, which inference wants back while w saves its work: w returns to the queue."""
    run = checked_run(
        FIFO,
        [row("w", 0.0, 100.0, 2)],
        fleet_with_inference(1, 1),
        settings=SAVING_20_S,
        loans=lending((0.0, 1), (60.0, 0)),
        actions=[MigrateAt(50.0, W, RegionId("r"))],
    )
    (evicted,) = events_of(run, "evicted")
    assert (evicted["t"], evicted["cause"], evicted["checkpoint_progress"]) == (70.0, "migrated", 50.0)
    assert "successor" not in evicted
    assert [event["t"] for event in events_of(run, "reclaimed")] == [60.0]
    assert run.ends() == {"w": 120.0}


def test_reserved_places_and_attempts_leave_a_loan_side_by_side() -> None:
    """Both machines are asked back at 60: s1, where only w's next place is kept, goes at once, s0 when y has saved."""
    run = checked_run(
        FIFO,
        [row("v", 0.0, 100.0, 2), row("w", 0.0, 100.0, 1), row("y", 0.0, 500.0, 1)],
        fleet_with_inference(1, 2),
        settings=SAVING_20_S,
        loans=lending((0.0, 2), (60.0, 0), (200.0, 2)),
        actions=[MigrateAt(50.0, W, RegionId("r"))],
    )
    assert [(event["t"], event["machine"]) for event in events_of(run, "reclaimed")] == [(60.0, "s1"), (80.0, "s0")]
    assert [event["t"] for event in events_of(run, "loaned")] == [0.0, 0.0, 200.0, 200.0]
