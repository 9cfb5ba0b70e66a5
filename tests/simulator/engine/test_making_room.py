"""Who waits for whom in a simulation: worked out by hand."""

from __future__ import annotations

from domain.fleet import Fleet
from domain.identifiers import RegionId, WorkloadId
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.inputs.actions import MigrateAt
from simulator.policies.registry import policies
from tests.simulator.engine.checked_run import checked_run, machine, region, row

SRTF = policies()["srtf"]
SAVING_20_S = SimulationSettings(
    costs=CostSettings(container_start_s=0.0, checkpoint_save_s=20.0, restore_s=0.0, checkpoint_interval_s=0.0)
)
ONE_GPU = Fleet((region("east", [machine("e0", 1)]),))


def test_none_is_given_what_another_waits_for() -> None:
    """x makes b leave, which saves its work until 30; y, which comes at 12, can make x leave no sooner."""
    run = checked_run(
        SRTF, [row("b", 0.0, 1000.0), row("x", 10.0, 300.0), row("y", 12.0, 5.0)], ONE_GPU, settings=SAVING_20_S
    )
    assert (run.starts()["x"], run.starts()["y"]) == (30.0, 50.0)


def test_an_attempt_on_free_gpus_waits_for_none_that_leave_others_of_the_machine() -> None:
    """b saves its work from 10 to 30, to go on on e1; z, which comes at 12, is given a free GPU of e0."""
    fleet = Fleet((region("east", [machine("e0", 2), machine("e1", 1)]),))
    migration = [MigrateAt(10.0, WorkloadId("b"), RegionId("east"))]
    run = checked_run(
        SRTF, [row("b", 0.0, 1000.0), row("z", 12.0, 500.0)], fleet, settings=SAVING_20_S, actions=migration
    )
    assert run.starts()["z"] == 12.0
