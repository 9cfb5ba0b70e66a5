"""Room for gangs in simulations: worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain.fleet import Fleet
from formats.scheduler_file import CompactionSection
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.policies.registry import policies
from tests.simulator.engine.checked_run import CheckedRun, checked_run, machine, region, row

TWO_MACHINES = Fleet((region("east", [machine("e0", 2), machine("e1", 2)]),))


def run_of(section: CompactionSection, checkpoint_interval_s: float = 10.0) -> CheckedRun:
    """a and b fill e0, c is on e1; b ends at 10, and g asks at 20 for two GPUs of one machine. z, at 40, lets all be looked at."""
    costs = CostSettings(
        container_start_s=0.0,
        checkpoint_save_s=0.0,
        restore_s=0.0,
        checkpoint_interval_s=checkpoint_interval_s,
    )
    rows = [
        row("a", 0.0, 1000.0),
        row("b", 0.0, 10.0),
        row("c", 0.0, 1000.0),
        replace(row("g", 20.0, 100.0), gpus=2),
        replace(row("z", 40.0, 100.0), gpus=2),
    ]
    settings = SimulationSettings(costs=costs, compaction=section)
    return checked_run(policies()["fifo"], rows, TWO_MACHINES, settings=settings)


def test_room_is_made_for_a_gang_that_has_waited_for_longer_than_that_costs() -> None:
    run = run_of(CompactionSection(enabled=True, restart_s=30.0))
    assert run.starts()["g"] == 40.0
    moved = [record for record in run.log if record["event"] == "evicting"]
    assert [(record["cause"], record["room_for"]) for record in moved] == [("migrated", "g")]


@pytest.mark.parametrize(
    ("section", "checkpoint_interval_s"),
    [
        (CompactionSection(), 10.0),
        (CompactionSection(enabled=True, restart_s=41.0), 10.0),
        (CompactionSection(enabled=True, restart_s=0.0), 0.0),
        (CompactionSection(enabled=True, restart_s=0.0, checkpoint_within_s=9.0), 15.0),
    ],
    ids=["off", "too costly", "no checkpoint", "an old checkpoint"],
)
def test_else_the_gang_waits(section: CompactionSection, checkpoint_interval_s: float) -> None:
    assert run_of(section, checkpoint_interval_s).starts()["g"] == 1000.0


def test_where_regions_lack_gpus_what_runs_goes_on_in_another_one_if_the_rule_allows() -> None:
    fleet = Fleet((region("east", [machine("e0", 2)]), region("west", [machine("w0", 2)])))
    costs = CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0, checkpoint_interval_s=10.0)
    rows = [
        row("a", 0.0, 1000.0),
        row("b", 0.0, 10.0),
        row("c", 0.0, 1000.0),
        replace(row("g", 20.0, 100.0), gpus=2),
        replace(row("z", 60.0, 100.0), gpus=2),
    ]

    settings = SimulationSettings(costs=costs, compaction=CompactionSection(enabled=True, restart_s=30.0))
    apart = checked_run(policies()["fifo"], rows, fleet, settings=settings)
    assert apart.starts()["g"] == 1000.0
    together = checked_run(
        policies()["fifo"],
        rows,
        fleet,
        settings=settings.model_copy(
            update={"compaction": CompactionSection(enabled=True, restart_s=30.0, between_regions=True)}
        ),
    )
    assert together.starts()["g"] == 60.0
    moved = [record for record in together.log if record["event"] == "evicting"]
    assert [(record["cause"], record["room_for"]) for record in moved] == [("migrated", "g")]
