"""A minimum run time and a limit of evictions: kept to the instant, and room found as soon as time makes it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.identifiers import ANY_GPU_MODEL, RegionId, TenantId, WorkloadId
from domain.resources import Quota
from domain.tenant import Tenant
from formats.scheduler_file import EvictionSection
from formats.snapshot_file import dump_snapshot, parse_snapshot
from formats.trace import TraceRow
from global_scheduler.levels.attained_service import AttainedService
from services.simulation.logged_run import logged_run
from simulator.engine.settings import CostSettings, SimulationSettings, settings_from
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.actions import MigrateAt
from simulator.policies.registry import policies
from simulator.validation.report import Invariant
from tests.examples import examples
from tests.simulator.engine.checked_run import NO_COSTS, CheckedRun, checked_run, one_region, row
from tests.simulator.engine.small_worlds import SmallWorld, crowded_worlds
from tests.simulator.engine.test_negative_cache_switch import assert_same_without_memory
from tests.simulator.log_builder import real

LADDER = tuple(
    Tenant(TenantId(name), priority, Quota.of({ANY_GPU_MODEL: 8})) for name, priority in (("high", 0), ("low", 5))
)


def trace_of(*rows: tuple[str, float, float]) -> list[TraceRow]:
    """The first letters of the names are those of the tenants."""
    return [row(name, at, runs, 1, "high" if name[0] == "h" else "low") for name, at, runs in rows]


def run_with(settings: SimulationSettings, *rows: tuple[str, float, float]) -> CheckedRun:
    """One machine of one GPU."""
    return checked_run(policies()["mast"], trace_of(*rows), one_region(1, 1), LADDER, settings)


def bounded(
    *, minimum_run_time_s: float = 0.0, evictions_per_workload_and_hour: int | None = None
) -> SimulationSettings:
    rule = EvictionSection(
        minimum_run_time_s=minimum_run_time_s, evictions_per_workload_and_hour=evictions_per_workload_and_hour
    )
    return NO_COSTS.model_copy(update={"scan_period_s": 0.0, "eviction": rule})


def eviction_times(run: CheckedRun) -> list[object]:
    return [record["t"] for record in run.log if record["event"] == "evicting"]


def test_without_a_minimum_the_better_one_evicts_at_once() -> None:
    assert run_with(bounded(), ("l", 0.0, 1000.0), ("h", 10.0, 50.0)).starts()["h"] == 10.0


def test_an_attempt_younger_than_the_minimum_stays_and_is_evicted_at_the_very_instant_it_is_not() -> None:
    """Nothing else happens at 600: it is time alone that makes room, and the queue is looked at again because of it."""
    run = run_with(bounded(minimum_run_time_s=600.0), ("l", 0.0, 1000.0), ("h", 10.0, 50.0))
    assert run.starts()["h"] == 600.0
    assert eviction_times(run) == [600.0]


def test_the_minimum_begins_with_the_run_and_not_with_the_dispatch() -> None:
    settings = bounded(minimum_run_time_s=600.0)
    slow = settings.model_copy(update={"costs": settings.costs.model_copy(update={"container_start_s": 150.0})})
    run = run_with(slow, ("l", 0.0, 1000.0), ("h", 10.0, 50.0))
    assert eviction_times(run) == [750.0]


def test_an_attempt_that_ends_before_its_time_makes_room_then() -> None:
    run = run_with(bounded(minimum_run_time_s=600.0), ("l", 0.0, 100.0), ("h", 10.0, 50.0))
    assert run.starts()["h"] == 100.0
    assert eviction_times(run) == []


def test_a_workload_is_evicted_no_more_often_in_an_hour_than_the_limit() -> None:
    """Evicted at 10 and 100; the third one has to wait until an hour after the first."""
    rows = (("l", 0.0, 9000.0), ("h1", 10.0, 20.0), ("h2", 100.0, 20.0), ("h3", 200.0, 20.0), ("h4", 300.0, 20.0))
    run = run_with(bounded(evictions_per_workload_and_hour=2), *rows)
    assert eviction_times(run) == [10.0, 100.0, 3610.0]
    assert {name: run.starts()[name] for name in ("h3", "h4")} == {"h3": 3610.0, "h4": 3630.0}


def test_a_limit_of_none_lets_everybody_finish() -> None:
    run = run_with(bounded(evictions_per_workload_and_hour=0), ("l", 0.0, 5000.0), ("h", 10.0, 50.0))
    assert run.starts()["h"] == 5000.0


def test_levels_obey_the_rule_too() -> None:
    """Shortest remaining time first evicts by levels: the short job comes when the long one has run its minimum."""
    rows = [row("long", 0.0, 1000.0), row("short", 10.0, 5.0)]
    settings = bounded(minimum_run_time_s=120.0)
    assert checked_run(policies()["srtf"], rows, one_region(1, 1), None, settings).starts()["short"] == 120.0


def test_the_settings_are_reachable_from_the_command_line() -> None:
    changes = ["eviction.minimum_run_time_s=600", "eviction.evictions_per_workload_and_hour=3"]
    rule = settings_from(None, changes, "--set").eviction.rule()
    assert (rule.minimum_run_time_s, rule.evictions_per_workload_and_hour) == (600.0, 3)


@pytest.mark.parametrize("policy", ["mast", "las", "srtf"])
@settings(max_examples=examples(20))
@given(world=crowded_worlds(), spares_guaranteed=st.booleans())
def test_never_another_decision_without_the_memory_where_time_makes_room(
    policy: str, world: SmallWorld, spares_guaranteed: bool
) -> None:
    """What was refused is asked again when time makes room: with the memory of refusals as without it."""
    rule = EvictionSection(
        minimum_run_time_s=35.0, evictions_per_workload_and_hour=2, spares_guaranteed=spares_guaranteed
    )
    bound = replace(world, settings=world.settings.model_copy(update={"eviction": rule}))
    assert assert_same_without_memory(bound, policy) > 0


def test_the_successor_of_a_migration_is_protected_before_it_starts() -> None:
    """`l` goes on elsewhere at 250; `h1` takes what it has left, `h2` must wait a minute, though `l` starts at 450."""
    rows = trace_of(("l", 0.0, 1000.0), ("h1", 260.0, 500.0), ("h2", 261.0, 50.0))
    migration = MigrateAt(250.0, WorkloadId("l"), RegionId("r"))
    slow = bounded(minimum_run_time_s=60.0).model_copy(update={"costs": CostSettings(container_start_s=200.0)})
    run = checked_run(policies()["mast"], rows, one_region(2, 1), LADDER, slow, actions=[migration])
    (saved,) = (record["t"] for record in run.log if record["event"] == "evicted" and record["cause"] == "migrated")
    assert eviction_times(run) == [250.0, real(saved) + 60.0]


OWNER_AND_GUEST = tuple(
    Tenant(TenantId(name), 6, Quota.of({ANY_GPU_MODEL: gpus})) for name, gpus in (("owner", 1), ("guest", 0))
)
LEVELLED = replace(policies()["mast"], levels=AttainedService((60.0,)))
SPARING = NO_COSTS.model_copy(
    update={"scan_period_s": 0.0, "eviction": EvictionSection(spares_guaranteed=True)},
)


@pytest.mark.parametrize(
    ("runs", "comes", "spares", "starts_s"),
    [
        ("owner", "guest", False, 1000.0),
        ("owner", "guest", True, 1000.0),
        ("guest", "owner", True, 100.0),
        ("guest", "guest", True, 100.0),
    ],
)
def test_only_who_is_guaranteed_evicts_who_is(runs: str, comes: str, spares: bool, starts_s: float) -> None:
    """Both are at the lowest priority; who runs has come down to level 1 by then, and only the owner has a quota: the guest
    stands below it there, whatever the rule spares."""
    settings = SPARING if spares else bounded()
    rows = [row("first", 0.0, 1000.0, 1, runs), row("second", 100.0, 50.0, 1, comes)]
    run = checked_run(LEVELLED, rows, one_region(1, 1), OWNER_AND_GUEST, settings)
    assert run.starts()["second"] == starts_s


@pytest.mark.parametrize("remembers", [True, False])
def test_what_an_opportunistic_workload_is_refused_a_guaranteed_one_like_it_may_get(remembers: bool) -> None:
    """Both want the place of a guaranteed attempt at level 1; the guest finds nothing before what is within quota has ended."""
    tenants = (*OWNER_AND_GUEST, Tenant(TenantId("other"), 6, Quota.of({ANY_GPU_MODEL: 1})))
    rows = [row("first", 0.0, 1000.0, 1, "other"), row("b", 100.0, 50.0, 1, "guest"), row("c", 100.0, 50.0, 1, "owner")]
    settings = SPARING.model_copy(update={"negative_cache": remembers})
    starts = checked_run(LEVELLED, rows, one_region(1, 1), tenants, settings).starts()
    assert (starts["c"], starts["b"]) == (100.0, 1050.0)


def test_a_guarantee_outlives_a_snapshot() -> None:
    rows = [row("first", 0.0, 1000.0, 1, "owner"), row("second", 100.0, 50.0, 1, "guest")]
    given = SimulationInput("test", rows[:1], one_region(1, 1), OWNER_AND_GUEST)
    simulation = Simulation(given, LEVELLED, SPARING.model_copy(update={"stop_after_s": 80.0}), 1)
    simulation.run()
    snapshot = parse_snapshot(dump_snapshot(simulation.snapshot()))
    resumed = Simulation(SimulationInput.of_snapshot(snapshot, "test", rows[1:]), LEVELLED, SPARING, 1)
    assert resumed.run().workloads.ended_s.tolist() == [1000.0, 1050.0]


def test_a_run_that_validates_its_log_checks_the_bounds_of_its_own_settings() -> None:
    given = SimulationInput("test", trace_of(("l", 0.0, 1000.0), ("h", 10.0, 50.0)), one_region(1, 1), LADDER)
    done = logged_run(given, policies()["mast"], bounded(minimum_run_time_s=60.0), 1, files=None, validate=True)
    assert done.validation is not None
    assert done.validation.valid
    assert done.validation.checks[Invariant.I15] == 2, "once for its bounds, once for whether it was needless"


def test_who_goes_on_elsewhere_may_be_evicted_when_it_has_run_there_for_the_minimum() -> None:
    """It migrates at 700, when its first attempt could have been evicted for a hundred seconds already."""
    rows = trace_of(("l", 0.0, 5000.0), ("h", 710.0, 50.0))
    rows[1] = replace(rows[1], gpus=2)
    run = checked_run(
        policies()["mast"],
        rows,
        one_region(2, 1),
        LADDER,
        bounded(minimum_run_time_s=600.0),
        actions=(MigrateAt(700.0, WorkloadId("l"), RegionId("r")),),
    )
    assert eviction_times(run) == [700.0, 1300.0]
