"""Synergy's policies on virtual time: starts, reverts and rounds, worked out by hand; and what never happens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from formats.trace import TraceRow
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.policies.policy import Policy
from simulator.policies.registry import policies
from simulator.validation.report import Invariant
from tests.examples import examples
from tests.simulator.engine.checked_run import NO_COSTS, Record
from tests.simulator.engine.profiled_run import fleet_of, profiled_run, trained, unequal_fleet

KNOWN = policies()
TUNE, OPT, GREEDY = KNOWN["synergy_tune"], KNOWN["synergy_opt"], KNOWN["synergy_greedy"]
PROPORTIONAL, DRF, TETRIS = KNOWN["synergy_proportional"], KNOWN["drf_packing"], KNOWN["tetris_packing"]
EVERY_MINUTE = NO_COSTS.model_copy(update={"round_s": 60.0})


def cpus_told(record: Record) -> list[float]:
    placement = record["placement"]
    assert isinstance(placement, list)
    return [float(str(entry["cpus"])) for entry in placement if isinstance(entry, dict)]


def test_a_workload_starts_with_its_best_demand_where_that_is_idle() -> None:
    run = profiled_run(TUNE, [trained("w", 0.0, 100.0, "hungry")], fleet_of(4))
    assert [cpus_told(record) for record in run.told("started")] == [[12.0]]
    assert run.ends == {"w": 25.0}
    assert not run.told("tuned")


def test_on_a_machine_with_more_cpus_for_each_gpu_it_starts_with_the_share_of_that() -> None:
    asked = replace(trained("asked", 0.0, 1000.0, ""), gpus=4, cpus=4.0)
    run = profiled_run(TUNE, [asked, trained("w", 1.0, 100.0, "hungry")], unequal_fleet((4, 3.0), (1, 6.0)))
    assert [cpus_told(record) for record in run.told("started")] == [[4.0], [6.0]]
    assert not run.told("tuned")


def test_what_is_content_with_less_takes_less() -> None:
    rows = [trained("lean", 0.0, 100.0, "lean"), trained("hungry", 1.0, 100.0, "hungry")]
    run = profiled_run(TUNE, rows, fleet_of(2), settings=EVERY_MINUTE)
    assert [cpus_told(record) for record in run.told("started")] == [[1.0], [3.0]]
    # The round gives the hungry one what the lean one leaves: 5 CPUs from 60 on.
    assert [(record["t"], cpus_told(record)) for record in run.told("tuned")] == [(60.0, [5.0])]
    assert run.ends["hungry"] == pytest.approx(60.0 + (100.0 - 59.0) / (5 / 3))


def test_a_newcomer_gets_back_what_others_hold_beyond_their_share() -> None:
    rows = [trained("first", 0.0, 1000.0, "hungry"), trained("second", 10.0, 100.0, "hungry")]
    settings = NO_COSTS.model_copy(update={"round_s": 1e6})
    run = profiled_run(TUNE, rows, fleet_of(2), settings=settings)
    # The first starts with all that is worth while: 6 CPUs, its machine has no more.
    told = [(record["event"], record["t"], cpus_told(record)) for record in run.told("started", "tuned")]
    assert told == [("started", 0.0, [6.0]), ("tuned", 10.0, [3.0]), ("started", 10.0, [3.0])]
    assert run.starts["second"] == 10.0


def test_nobody_gives_back_what_it_asked_for_itself() -> None:
    asked = replace(trained("first", 0.0, 100.0, "hungry"), cpus=6.0, memory_gib=60.0)
    run = profiled_run(TUNE, [asked, trained("second", 10.0, 100.0, "hungry")], fleet_of(2))
    assert run.ends["first"] == 50.0
    assert run.starts["second"] == 50.0


def test_nothing_is_given_back_before_it_runs() -> None:
    slow = SimulationSettings(
        costs=CostSettings(container_start_s=100.0, checkpoint_save_s=0.0, restore_s=0.0), round_s=60.0
    )
    rows = [trained("first", 0.0, 1000.0, "hungry"), trained("second", 10.0, 100.0, "hungry")]
    run = profiled_run(TUNE, rows, fleet_of(2), settings=slow)
    assert run.starts["first"] == 100.0
    assert run.starts["second"] == 200.0


def test_greedy_waits_for_its_best_demand() -> None:
    rows = [trained("first", 0.0, 400.0, "hungry"), trained("second", 10.0, 100.0, "hungry")]
    fleet = fleet_of(4)
    run = profiled_run(GREEDY, rows, fleet)
    assert run.starts["second"] == 100.0
    assert profiled_run(PROPORTIONAL, rows, fleet).starts["second"] == 10.0
    assert profiled_run(TUNE, rows, fleet).starts["second"] == 10.0


def test_drf_starts_the_smallest_dominant_share_first() -> None:
    rows = [
        trained("running", 0.0, 400.0, "hungry"),
        trained("hungry", 1.0, 100.0, "hungry"),
        trained("lean", 2.0, 100.0, "lean"),
    ]
    run = profiled_run(DRF, rows, fleet_of(4), settings=NO_COSTS.model_copy(update={"auction_period_s": 100.0}))
    # At 100 there is room for either, and the lean one asks for a smaller part of what there is.
    assert run.starts == {"running": 0.0, "lean": 100.0, "hungry": 200.0}
    in_order = profiled_run(GREEDY, rows, fleet_of(4), settings=NO_COSTS.model_copy(update={"auction_period_s": 100.0}))
    assert in_order.starts == {"running": 0.0, "hungry": 100.0, "lean": 200.0}


def test_tetris_starts_what_is_aligned_best_unless_it_has_much_to_do() -> None:
    rows = [
        trained("running", 0.0, 400.0, "hungry"),
        trained("lean", 1.0, 100.0, "lean"),
        trained("hungry", 2.0, 50.0, "hungry"),
    ]
    settings = NO_COSTS.model_copy(update={"auction_period_s": 100.0})
    assert profiled_run(TETRIS, rows, fleet_of(4), settings=settings).starts["hungry"] == 100.0
    long = [*rows[:2], trained("hungry", 2.0, 100_000.0, "hungry")]
    assert profiled_run(TETRIS, long, fleet_of(4), settings=settings).starts["hungry"] == 200.0


def test_without_profiles_all_mechanisms_come_to_the_same() -> None:
    rows = [trained(f"w{number}", 10.0 * number, 100.0 + 7.0 * number, "") for number in range(8)]
    expected = profiled_run(PROPORTIONAL, rows, fleet_of(2, 1), profiles={})
    for policy in (GREEDY, TUNE, OPT, DRF):
        found = profiled_run(policy, rows, fleet_of(2, 1), profiles={})
        assert found.starts == expected.starts
        assert found.ends == expected.ends


ROWS = st.lists(
    st.builds(
        lambda submit_s, duration_s, model, gpus: (float(submit_s), float(duration_s), model, gpus),
        st.integers(0, 400),
        st.integers(20, 900),
        st.sampled_from(["hungry", "lean", ""]),
        st.sampled_from([1, 1, 1, 2, 4]),
    ),
    min_size=1,
    max_size=14,
)


def rows_of(drawn: list[tuple[float, float, str, int]]) -> list[TraceRow]:
    return [
        trained(f"w{number:02}", submit_s, duration_s, model, gpus)
        for number, (submit_s, duration_s, model, gpus) in enumerate(sorted(drawn))
    ]


@hypothesis_settings(max_examples=examples(25), deadline=None)
@given(
    ROWS,
    st.sampled_from([TUNE, OPT, GREEDY, DRF, TETRIS]),
    st.sampled_from(["fifo", "srtf", "las", "ftf"]),
    st.sampled_from([0.0, 15.0]),
)
def test_never_slower_than_with_the_share_under_any_order(
    drawn: list[tuple[float, float, str, int]], policy: Policy, ordering: str, start_s: float
) -> None:
    settings = SimulationSettings(
        costs=CostSettings(container_start_s=start_s, checkpoint_save_s=5.0, restore_s=0.0, checkpoint_interval_s=0.0),
        round_s=30.0,
        scan_period_s=30.0,
        ordering=ordering,
    )
    run = profiled_run(policy, rows_of(drawn), fleet_of(4, 2, 2), settings=settings)
    assert Invariant.I7 not in run.report.violations_by_invariant


@hypothesis_settings(max_examples=examples(25), deadline=None)
@given(
    ROWS,
    st.lists(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1.0, 3.0, 6.0])), min_size=2, max_size=4),
    st.sampled_from([TUNE, OPT]),
)
def test_never_slower_than_with_the_share_on_unequal_machines(
    drawn: list[tuple[float, float, str, int]], machines: list[tuple[int, float]], policy: Policy
) -> None:
    largest = max(gpus for gpus, _ in machines)
    rows = [replace(row, gpus=min(row.gpus or 1, largest)) for row in rows_of(drawn)]
    run = profiled_run(policy, rows, unequal_fleet(*machines), settings=EVERY_MINUTE)
    assert Invariant.I7 not in run.report.violations_by_invariant


@hypothesis_settings(max_examples=examples(25), deadline=None)
@given(ROWS)
def test_never_ends_the_work_later_than_with_proportional_shares_where_all_take_one_gpu(
    drawn: list[tuple[float, float, str, int]],
) -> None:
    """With one GPU each, whoever is first in the queue starts under both when a GPU is free: GPUs are never idle for lack of
    CPUs, so that each starts, and ends, no later."""
    rows = [replace(row, gpus=1) for row in rows_of(drawn)]
    tuned = profiled_run(TUNE, rows, fleet_of(2, 1), settings=EVERY_MINUTE)
    proportional = profiled_run(PROPORTIONAL, rows, fleet_of(2, 1), settings=EVERY_MINUTE)
    for name in tuned.ends:
        assert tuned.starts[name] <= proportional.starts[name] + 1e-6
        assert tuned.ends[name] <= proportional.ends[name] + 1e-6
