"""What policies know of an attempt after a resize, a migration, or a snapshot: worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.fleet import Fleet
from domain.identifiers import RegionId, TenantId, WorkloadId
from formats.trace import TraceRow
from formats.trace_workload import JOB_NAME
from global_scheduler.levels.attained_service import AttainedService
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.actions import MigrateAt, ResizeAt
from simulator.policies.policy import Policy
from simulator.policies.registry import policies
from tests.simulator.engine.checked_run import CheckedRun, checked_run, machine, region, row, unlimited

W = WorkloadId("w")
SAVING_20_S = SimulationSettings(
    costs=CostSettings(container_start_s=0.0, checkpoint_save_s=20.0, restore_s=0.0, checkpoint_interval_s=0.0)
)
ONE_MACHINE = Fleet((region("east", [machine("e0", 4)]),))
TWO_SMALL_MACHINES = Fleet((region("east", [machine("e0", 1), machine("e1", 1)]),))


def with_levels(policy: str) -> Policy:
    """That policy with a second level from 1,000 GPU-seconds on."""
    return replace(policies()[policy], name=f"{policy}_las", levels=AttainedService((1000.0,)))


def elastic(name: str, submit_s: float, duration_s: float, tasks: int = 1) -> TraceRow:
    """Tasks of one GPU, up to four."""
    return TraceRow(WorkloadId(name), TenantId("t"), submit_s, duration_s, tasks, tasks=tasks, min_tasks=1, max_tasks=4)


def gang_of_two(name: str, submit_s: float) -> TraceRow:
    return TraceRow(WorkloadId(name), TenantId("t"), submit_s, 10.0, 2, tasks=2)


def times_of_new_levels(run: CheckedRun) -> list[object]:
    return [event["t"] for event in run.log if event["event"] == "reclassified" and event.get("workload") == "w"]


def test_a_grown_attempt_attains_service_with_all_that_it_holds() -> None:
    """One GPU for 100 s, then four: 1,000 GPU-seconds are reached at 100 + 900 / 4 = 325."""
    policy = with_levels("fifo")
    grown = checked_run(policy, [elastic("w", 0.0, 4000.0)], ONE_MACHINE, actions=[ResizeAt(100.0, W, JOB_NAME, 4)])
    assert times_of_new_levels(grown) == [325.0]
    shrunk = [ResizeAt(100.0, W, JOB_NAME, 4), ResizeAt(200.0, W, JOB_NAME, 1)]
    again = checked_run(policy, [elastic("w", 0.0, 4000.0)], ONE_MACHINE, actions=shrunk)
    assert times_of_new_levels(again) == [700.0]


def test_scan_passes_see_what_a_grown_attempt_attains() -> None:
    """It crosses the threshold at 325; a pass at 400 makes it leave for one that has attained nothing."""
    rows = [elastic("w", 0.0, 4000.0), row("y", 400.0, 10.0, 4)]
    grown = checked_run(with_levels("mast"), rows, ONE_MACHINE, actions=[ResizeAt(100.0, W, JOB_NAME, 4)])
    assert grown.starts()["y"] < 500.0


def test_backfilling_expects_a_grown_attempt_to_end_when_it_does_and_to_free_what_it_holds() -> None:
    """w ends at 100 + 900 / 4 = 325 instead of 1000; z (4 GPUs) is to start then, and x must not delay it."""
    rows = [elastic("w", 0.0, 1000.0), row("z", 200.0, 50.0, 4), row("x", 210.0, 500.0, 1)]
    fleet = Fleet((region("east", [machine("e0", 4), machine("e1", 1)]),))
    held = [row("v", 0.0, 240.0, 1), *rows]
    for policy in ("easy_backfill", "conservative_backfill"):
        run = checked_run(policies()[policy], held, fleet, actions=[ResizeAt(100.0, W, JOB_NAME, 4)])
        assert run.starts()["z"] == 325.0
        assert run.starts()["x"] == 240.0


def test_a_migrated_attempt_keeps_its_level_in_scan_passes() -> None:
    """w has 1,500 GPU-seconds when it migrates: y, which has none and needs both machines, may make it leave."""
    rows = [row("w", 0.0, 4000.0, 1), gang_of_two("y", 1600.0)]
    migration = [MigrateAt(1500.0, W, RegionId("east"))]
    run = checked_run(with_levels("mast"), rows, TWO_SMALL_MACHINES, settings=SAVING_20_S, actions=migration)
    assert run.starts()["y"] < 2000.0


@pytest.mark.parametrize("policy", ["fifo", "mast"])
def test_an_attempt_keeps_its_level_over_a_snapshot(policy: str) -> None:
    """w attained 1,500 GPU-seconds in its first attempt, and runs again when the snapshot is taken."""
    rows = [row("w", 0.0, 4000.0, 1), gang_of_two("y", 1500.0), gang_of_two("z", 1700.0)]
    chosen = with_levels(policy)

    broken_off = Simulation(
        SimulationInput("test", rows[:2], TWO_SMALL_MACHINES, unlimited(rows)),
        chosen,
        SAVING_20_S.model_copy(update={"stop_after_s": 1650.0}),
        1,
    )
    broken_off.run()
    after = SimulationInput.of_snapshot(broken_off.snapshot(), "test", rows[2:])
    table = Simulation(after, chosen, SAVING_20_S, 1).run().workloads
    # It makes w leave as soon as it comes, or a scan pass of the new run has ranked it.
    assert dict(zip(table.ids, table.ended_s.tolist(), strict=True))["z"] < 1800.0
