"""Placement by skew in simulations, and what spreading costs there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_manager.skew.packlimit import DEFAULT_PACKLIMIT
from cluster_manager.skew.slowdown import SlowdownStep, SpreadSlowdown
from domain.fleet import Fleet
from domain.identifiers import JobName, TenantId, WorkloadId
from domain.model_profile import ModelProfile
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from formats.snapshot_file import dump_snapshot, parse_snapshot
from formats.trace import TraceRow
from simulator.baselines.fifo import BEST_EFFORT, FIFO
from simulator.engine.settings import PlacementSettings, SimulationSettings, SlowdownSetting
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.skews import with_skew
from simulator.policies.placement import BySkew
from tests.simulator.engine.checked_run import (
    NOBODY_PAYS,
    CheckedRun,
    checked_run,
    machine,
    one_region,
    region,
    row,
    unlimited,
)

BY_SKEW = replace(FIFO, name="by_skew", placement=BySkew())
FLEET = one_region(5, 4)
HOLDERS = [
    row("h0", 0.0, 10_000.0, 3),
    row("h1", 0.0, 10_000.0, 3),
    row("h2", 0.0, 100.0, 3),
    row("h3", 0.0, 10_000.0, 3),
]
"""On four of five machines of 4 GPUs, each of which has one idle GPU then."""
SLOWER = [SlowdownSetting(skew=0.5, slowdown=1.5), SlowdownSetting(skew=0.0, slowdown=1.0)]


def placement(**said: object) -> SimulationSettings:
    return SimulationSettings(costs=NOBODY_PAYS, placement=PlacementSettings.model_validate(said))


def skewed(name: str, submit_s: float, duration_s: float, gpus: int, skew: float | None) -> TraceRow:
    return replace(row(name, submit_s, duration_s, gpus), skew=skew)


def machines_of(run: CheckedRun, workload: str) -> dict[str, int]:
    """GPUs by machine of its first attempt."""
    (started,) = [record for record in run.log if record["event"] == "started" and record["workload"] == workload]
    held: dict[str, int] = {}
    placed = started["placement"]
    assert isinstance(placed, list)
    for task in placed:
        assert isinstance(task, dict)
        gpus, name = task["gpus"], str(task["machine"])
        assert isinstance(gpus, list)
        held[name] = held.get(name, 0) + len(gpus)
    return held


@pytest.mark.parametrize(
    ("skew", "settings", "start_s", "machines"),
    [
        (0.7, placement(), 1.0, 5),
        (0.7, placement(wait_for_consolidation=True), 100.0, 2),
        (0.1, placement(wait_for_consolidation=True), 1.0, 5),
        (0.7, placement(wait_for_consolidation=True, packlimit=0.8), 1.0, 5),
        (0.1, placement(wait_for_consolidation=True, packlimit=0.05), 100.0, 2),
        # What nothing is known of is cut as ever: into the fewest tasks.
        (None, placement(), 100.0, 2),
    ],
)
def test_above_packlimit_it_is_on_the_fewest_machines_or_waits_for_them(
    skew: float | None, settings: SimulationSettings, start_s: float, machines: int
) -> None:
    """8 GPUs are idle: a whole machine and one GPU on each of four; a second machine is idle after 100 s."""
    run = checked_run(BY_SKEW, [*HOLDERS, skewed("job", 1.0, 50.0, 8, skew)], FLEET, settings=settings)
    assert run.starts()["job"] == start_s
    assert len(machines_of(run, "job")) == machines


def test_policies_that_scatter_do_not_look_at_the_skew() -> None:
    rows = [*HOLDERS, skewed("job", 1.0, 50.0, 4, 0.9)]
    plain = [*HOLDERS, row("job", 1.0, 50.0, 4)]
    assert machines_of(checked_run(BEST_EFFORT, rows, FLEET), "job") == machines_of(
        checked_run(BEST_EFFORT, plain, FLEET), "job"
    )


@pytest.mark.parametrize(("skew", "machines"), [(0.9, {"n0": 2, "n1": 1}), (0.1, {"m0": 1, "m1": 1, "m2": 1})])
def test_a_workload_as_users_describe_it_is_consolidated_by_the_skew_that_it_declares(
    skew: float, machines: dict[str, int]
) -> None:
    """The first rack has one idle GPU on each of three machines, the second has two idle machines of two."""
    fleet = Fleet((region("r", [machine(f"m{n}", 4) for n in range(3)], [machine(f"n{n}", 2) for n in range(2)]),))
    job = JobSpecification(JobName("train"), 3, TaskResources(gpus=1), Emulated(50.0), profile=ModelProfile(skew))
    workload = Workload(WorkloadId("job"), WorkloadSpecification("job", TenantId("t"), (job,)), 1.0)
    run = checked_run(FIFO, [row(f"h{n}", 0.0, 1e4, 3) for n in range(3)], fleet, workloads=[workload])
    assert machines_of(run, "job") == machines


@pytest.mark.parametrize(("skew", "took_s"), [(0.9, 75.0), (0.5, 75.0), (0.4, 50.0), (None, 50.0)])
def test_work_on_more_machines_than_it_needs_is_slower_by_the_table(skew: float | None, took_s: float) -> None:
    """One GPU on each of two machines is idle, and both would fit on one."""
    rows = [row("h0", 0.0, 1e4, 3), row("h1", 0.0, 1e4, 3), replace(skewed("job", 1.0, 50.0, 2, skew), tasks=2)]
    run = checked_run(FIFO, rows, one_region(2, 4), settings=placement(spread_slowdown=SLOWER))
    assert len(machines_of(run, "job")) == 2
    assert run.ends()["job"] == pytest.approx(1.0 + took_s)


def test_work_that_is_not_spread_is_as_fast_as_ever() -> None:
    rows = [skewed("alone", 0.0, 50.0, 4, 0.9), skewed("wide", 0.0, 50.0, 8, 0.9)]
    run = checked_run(BY_SKEW, rows, one_region(3, 4), settings=placement(spread_slowdown=SLOWER))
    assert run.ends() == {"alone": 50.0, "wide": 50.0}


def test_the_slowest_job_counts_where_several_advance_together() -> None:
    table = SpreadSlowdown((SlowdownStep(0.2, 1.2), SlowdownStep(0.6, 2.0)), {})
    assert [table.of_skew(skew) for skew in (0.0, 0.2, 0.59, 0.6, 1.0)] == [1.0, 1.2, 1.2, 2.0, 2.0]
    assert table.of((), ()) == 1.0


def test_a_row_gets_the_skew_of_the_model_that_it_names_and_always_the_same() -> None:
    assert with_skew(replace(row("a", 0.0, 1.0), model="ResNet-50 (batch size 64)")).skew == 0.0921
    assert with_skew(replace(row("a", 0.0, 1.0), model="vgg16")).skew == 0.7427
    assert with_skew(skewed("a", 0.0, 1.0, 1, 0.3)).skew == 0.3
    assert with_skew(row("cpus", 0.0, 1.0, 0)).skew is None
    same_model = {with_skew(replace(row(name, 0.0, 1.0), model="Transformer")).skew for name in "abcdef"}
    assert len(same_model) == 1
    drawn = [with_skew(row(f"w{number}", 0.0, 1.0)).skew for number in range(100)]
    assert drawn == [with_skew(row(f"w{number}", 0.0, 1.0)).skew for number in range(100)]
    assert len(set(drawn)) == 10


def test_drawn_skews_decide_like_given_ones() -> None:
    holders = [replace(holder, skew=0.7) for holder in HOLDERS]
    named = [*holders, replace(row("job", 1.0, 50.0, 8), model="vgg19")]
    given = [*holders, skewed("job", 1.0, 50.0, 8, 0.7152)]
    drawn = checked_run(BY_SKEW, named, FLEET, settings=placement(draw_skews=True, wait_for_consolidation=True))
    said = checked_run(BY_SKEW, given, FLEET, settings=placement(wait_for_consolidation=True))
    assert drawn.starts() == said.starts()
    assert drawn.starts()["job"] == 100.0


def test_below_packlimit_it_fills_what_others_have_left_over() -> None:
    """8 GPUs are asked for: one is idle on each of four machines, and two machines are idle."""
    run = checked_run(BY_SKEW, [*HOLDERS, skewed("job", 1.0, 50.0, 8, 0.1)], one_region(6, 4))
    assert sorted(machines_of(run, "job").values()) == [1, 1, 1, 1, 4]


def trial(**said: object) -> SimulationSettings:
    return placement(trial_s=20.0, **said)


IDLE_LATER = [row("h0", 0.0, 10_000.0, 3), row("h1", 0.0, 10_000.0, 3), row("h2", 0.0, 10.0, 4)]
"""On three machines of 4 GPUs, of which the last is idle from 10 on."""


def spans(run: CheckedRun, workload: str) -> list[tuple[float, float, int]]:
    """Of each attempt: when it starts and ends, and on how many machines it is."""
    attempts, machine = run.record.attempts, run.record.shares.machine
    position = list(run.record.workloads.ids).index(workload)
    return [
        (
            float(attempts.started_s[row]),
            float(attempts.ended_s[row]),
            len(set(machine[attempts.first_share[row] : attempts.first_share[row + 1]].tolist())),
        )
        for row in range(len(attempts))
        if attempts.workload[row] == position
    ]


@pytest.mark.parametrize(
    ("skew", "job_spans"),
    [
        (0.7, [(1.0, 21.0, 2), (21.0, 51.0, 1)]),  # moved when its trial is over, and no work is lost
        (0.1, [(1.0, 51.0, 2)]),  # not above PACKLIMIT
        (None, [(11.0, 61.0, 1)]),  # without a skew there is nothing to try: cut as ever
    ],
)
def test_after_its_trial_a_job_of_high_skew_goes_on_on_fewer_machines(
    skew: float | None, job_spans: list[tuple[float, float, int]]
) -> None:
    rows = [*IDLE_LATER, skewed("job", 1.0, 50.0, 2, skew)]
    rows[-1] = rows[-1] if skew is not None else replace(rows[-1], submit_s=11.0)
    run = checked_run(BY_SKEW, rows, one_region(3, 4), settings=trial())
    assert spans(run, "job") == job_spans


def test_without_room_for_that_it_stays_where_it_is() -> None:
    rows = [row("h0", 0.0, 1e4, 3), row("h1", 0.0, 1e4, 3), skewed("job", 1.0, 50.0, 2, 0.7)]
    run = checked_run(BY_SKEW, rows, one_region(2, 4), settings=trial())
    assert spans(run, "job") == [(1.0, 51.0, 2)]


def test_what_a_trial_shows_holds_for_others_of_the_model_that_wait_or_come() -> None:
    holders = [row("h0", 0.0, 1e4, 3), row("h1", 0.0, 1e4, 3), row("h2", 0.0, 30.0, 4)]
    vgg = [
        replace(skewed(name, submit_s, 50.0, 2, 0.7), model="vgg")
        for name, submit_s in [("first", 1.0), ("waits", 2.0), ("later", 90.0)]
    ]
    run = checked_run(BY_SKEW, [*holders, *vgg], one_region(3, 4), settings=trial())
    assert spans(run, "first") == [(1.0, 51.0, 2)], "at 21 there was no machine for both of its tasks"
    assert spans(run, "waits") == [(30.0, 80.0, 1)], "consolidated from its first start on"
    assert spans(run, "later") == [(90.0, 140.0, 1)]


def test_policies_that_do_not_look_at_the_skew_have_no_trials() -> None:
    rows = [*IDLE_LATER, skewed("job", 1.0, 50.0, 2, 0.7)]
    assert spans(checked_run(BEST_EFFORT, rows, one_region(3, 4), settings=trial()), "job") == [(1.0, 51.0, 2)]


def both_ways(skew: float) -> list[TraceRow]:
    """Two rows of one model, of which the first has to be spread and the second finds an idle machine."""
    rows = [row("h0", 0.0, 60.0, 3), row("h1", 0.0, 60.0, 3), skewed("spread", 1.0, 50.0, 2, skew)]
    rows += [skewed("close", 200.0, 50.0, 2, skew)]
    return [replace(one, model=f"m{skew}") if one.skew is not None else one for one in rows]


def test_the_limit_is_learnt_from_what_was_slower_when_it_was_spread() -> None:
    slower_from = [SlowdownSetting(skew=0.2, slowdown=1.5)]
    learning = Simulation(
        SimulationInput("test", both_ways(0.25), one_region(2, 4), unlimited(both_ways(0.25))),
        BY_SKEW,
        placement(packlimit="learnt", spread_slowdown=slower_from),
        seed=1,
    )
    assert learning.world.packlimit.limit == DEFAULT_PACKLIMIT
    learning.run()
    # 0.25 pays now, GoogleNet's 0.1461 does not.
    assert learning.world.packlimit.limit == pytest.approx((0.1461 + 0.25) / 2)
    snapshot = parse_snapshot(dump_snapshot(learning.snapshot()))
    later = [skewed("job", snapshot.taken_s + 1.0, 50.0, 2, 0.25)]
    goes_on = SimulationInput.of_snapshot(snapshot, "later", later)
    for setting, limit in [("auto", (0.1461 + 0.25) / 2), ("learnt", (0.1461 + 0.25) / 2), (0.7, 0.7)]:
        after = Simulation(goes_on, BY_SKEW, placement(packlimit=setting), seed=1)
        assert after.world.packlimit.limit == pytest.approx(limit)


def test_with_a_learnt_limit_work_is_decided_when_it_comes_to_the_queue() -> None:
    slower_from = [SlowdownSetting(skew=0.2, slowdown=1.5)]
    later = [replace(row("h2", 300.0, 1e3, 3)), replace(row("h3", 300.0, 1e3, 3)), row("h4", 300.0, 30.0, 4)]
    rows = [*both_ways(0.25), *later, skewed("job", 301.0, 50.0, 2, 0.3)]
    settings = placement(packlimit="learnt", wait_for_consolidation=True, spread_slowdown=slower_from)
    run = checked_run(BY_SKEW, rows, one_region(3, 4), settings=settings)
    assert spans(run, "job") == [(330.0, 380.0, 1)], "it waits for one machine, for 0.3 is above the limit by now"
