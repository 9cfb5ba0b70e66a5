"""Reservations in simulations: worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, TenantId
from domain.resources import Quota
from domain.tenant import Tenant
from formats.scheduler_file import ReservationLimitsSection, ReservationsSection
from regional_scheduler.reservations import MOST_GANGS
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.policies.registry import policies
from tests.examples import examples
from tests.simulator.engine.checked_run import CheckedRun, checked_run, machine, region, row

TWO_MACHINES = Fleet((region("east", [machine("e0", 2), machine("e1", 2)]),))
FREE = CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0)
KEPT = ReservationsSection(enabled=True, after_s=100.0, least_gpus=4, start_up_s=0.0, look_every_s=50.0)

ALL = Quota.of({ANY_GPU_MODEL: 1_000})


def run_of(section: ReservationsSection, *, short_s: float = 800.0) -> CheckedRun:
    """a and b take all GPUs until 1,000 and 2,000; g asks at 10 for all; at 1,100 comes `long`, at 1,200 `short`."""
    rows = [
        replace(row("a", 0.0, 1_000.0), gpus=2),
        replace(row("b", 0.0, 2_000.0), gpus=2),
        replace(row("g", 10.0, 1_000.0), gpus=4),
        row("news", 200.0, 10.0),
        row("long", 1_050.0, 5_000.0),
        row("short", 1_060.0, short_s),
    ]
    settings = SimulationSettings(costs=FREE, reservations=section)
    return checked_run(policies()["fifo"], rows, TWO_MACHINES, settings=settings)


def test_without_a_reservation_what_comes_later_keeps_the_gang_waiting() -> None:
    starts = run_of(ReservationsSection()).starts()
    assert starts["long"] == 1_050.0
    assert starts["g"] == 6_050.0


def test_machines_are_kept_for_a_gang_and_what_ends_in_time_runs_there_before() -> None:
    run = run_of(KEPT)
    starts = run.starts()
    assert (starts["short"], starts["g"], starts["long"]) == (1_060.0, 2_000.0, 3_000.0)
    (reserved,) = [record for record in run.log if record["event"] == "reserved"]
    assert (reserved["t"], reserved["workload"], reserved["expected_start_s"]) == (200.0, "g", 2_000.0)
    assert reserved["machines"] == ["e0", "e1"]
    (ended,) = [record for record in run.log if record["event"] == "reservation_ended"]
    assert (ended["t"], ended["reason"]) == (2_000.0, "started")
    (waits,) = [record for record in run.log if record["event"] == "waiting" and record["workload"] == "long"]
    assert "kept for a gang that has waited for longer, expected to start at 1970-01-01 00:33 UTC" in str(
        waits["reason"]
    )
    assert isinstance(waits["diagnosis"], dict)
    assert waits["diagnosis"]["reason"] == "held_for_others"


def test_what_would_end_too_late_waits() -> None:
    starts = run_of(KEPT, short_s=950.0).starts()
    assert starts["g"] == 2_000.0
    assert starts["short"] == 3_000.0


def test_gangs_of_a_priority_that_gets_none_take_nobodys_turn() -> None:
    """More of them than are looked at stand before the gang that may have one."""
    many = MOST_GANGS + 1
    refused, allowed = Tenant(TenantId("refused"), 1, ALL), Tenant(TenantId("allowed"), 2, ALL)
    rows = [replace(row("a", 0.0, 1_000.0), gpus=2, tenant=refused.tenant)]
    rows += [replace(row(f"r{number:03}", 10.0, 100.0), gpus=4, tenant=refused.tenant) for number in range(many)]
    rows += [
        replace(row("g", 10.0, 100.0), gpus=4, tenant=allowed.tenant),
        replace(row("news", 200.0, 10.0), tenant=allowed.tenant),
    ]
    section = KEPT.model_copy(update={"priorities": {1: ReservationLimitsSection(at_most=0)}})
    run = checked_run(
        policies()["mast"],
        rows,
        TWO_MACHINES,
        (refused, allowed),
        settings=SimulationSettings(costs=FREE, reservations=section),
        check_every_events=1_000,
    )
    reserved = [(record["t"], record["workload"]) for record in run.log if record["event"] == "reserved"]
    assert reserved[0] == (240.0, "g"), "while a runs, and none of the others has started"


@settings(max_examples=examples(60))
@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(1, 30).map(lambda n: 60.0 * n), st.integers(0, 90)),
        min_size=4,
        max_size=30,
    ),
    st.lists(st.integers(0, 60), min_size=1, max_size=3, unique=True),
)
def test_never_is_a_gang_delayed_beyond_its_time_if_the_estimates_are_true(
    others: list[tuple[int, float, int]], gangs: list[int]
) -> None:
    rows = [
        replace(row(f"w{number:02}", 60.0 * minute, run_s), gpus=gpus)
        for number, (gpus, run_s, minute) in enumerate(others)
    ]
    rows += [replace(row(f"g{minute}", 60.0 * minute, 600.0), gpus=4) for minute in gangs]
    rows.sort(key=lambda one: (one.submit_s, one.workload_id))
    section = replace_section(after_s=0.0, look_every_s=1.0)
    run = checked_run(
        policies()["fifo"], rows, TWO_MACHINES, settings=SimulationSettings(costs=FREE, reservations=section)
    )
    starts, reserved = run.starts(), [record for record in run.log if record["event"] == "reserved"]
    for record in reserved:
        assert starts[str(record["workload"])] <= float(str(record["expected_start_s"]))
    reasons = {record["reason"] for record in run.log if record["event"] == "reservation_ended"}
    assert reasons <= {"started"}
    assert len({record["workload"] for record in reserved}) == len(reserved)


def replace_section(**changes: float) -> ReservationsSection:
    return KEPT.model_copy(update=changes)
