"""Machines of inference clusters on loan: when they take work, who must leave when they go back, and what that costs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.fleet import Cluster, Fleet, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    AttemptNumber,
    ClusterId,
    MachineId,
    RackId,
    RegionId,
    TenantId,
    WorkloadId,
)
from domain.placement import AttemptKey
from domain.resources import Quota
from domain.tenant import Tenant
from formats.problems import FormatError
from formats.trace import TraceRow
from formats.trace_workload import JOB_NAME
from regional_scheduler.reclaiming.fewest_evictions import FewestEvictions
from regional_scheduler.reclaiming.fewest_workloads import FewestWorkloadsFirst
from regional_scheduler.reclaiming.least_preemption_cost import LeastPreemptionCost
from regional_scheduler.reclaiming.policy import (
    AttemptOnMachine,
    BadReclaim,
    MachineOnLoan,
    ReclaimChoice,
    ReclaimingPolicy,
    reclaim_of,
)
from regional_scheduler.reclaiming.random_machines import RandomMachines
from simulator.engine.settings import CostSettings, FailureSettings, SimulationSettings
from simulator.inputs.actions import ResizeAt
from simulator.inputs.loans import LoanSchedule, LoanStep
from simulator.policies.policy import Policy
from simulator.policies.registry import policies
from simulator.results.capacity import supply_curve
from simulator.results.loan_figures import loan_figures_of
from simulator.results.record_of_log import record_of_log
from simulator.results.run_record import AttemptEnd, RunRecord
from tests.examples import examples
from tests.house.determinism import assert_same_output
from tests.simulator.engine.checked_run import NO_COSTS, CheckedRun, checked_run, machine, row
from tests.simulator.engine.small_worlds import TENANTS, SmallWorld
from tests.simulator.scenarios.scenario_run import scripted
from tests.simulator.scenarios.scenario_text import ScriptedFailure

FIFO = policies()["fifo"]
SERVING = ClusterId("serving")
COSTS = SimulationSettings(
    costs=CostSettings(container_start_s=10.0, checkpoint_save_s=5.0, restore_s=3.0, checkpoint_interval_s=0.0)
)


def fleet(training: int = 1, serving: int = 3) -> Fleet:
    """Machines t0, t1, ... for training and s0, s1, ... for inference, of two GPUs each."""
    clusters = tuple(
        Cluster(
            ClusterId(name), (Rack(RackId(name), tuple(machine(f"{name[0]}{number}", 2) for number in range(count))),)
        )
        for name, count in (("training", training), ("serving", serving))
        if count
    )
    return Fleet((Region(RegionId("r"), clusters),))


def lending(*steps: tuple[float, int]) -> LoanSchedule:
    return LoanSchedule(tuple(LoanStep(t_s, SERVING, machines) for t_s, machines in steps))


@dataclass(frozen=True, slots=True)
class These:
    """Sends back these machines, in one choice after another; keeps what it was asked."""

    answers: list[str]
    asked: list[tuple[tuple[MachineOnLoan, ...], int]]
    name: str = "these"

    def choose(self, on_loan: Sequence[MachineOnLoan], count: int, rng: np.random.Generator) -> ReclaimChoice:
        self.asked.append((tuple(on_loan), count))
        there = {machine.machine: machine for machine in on_loan}
        names = [MachineId(name) for name in self.answers[len(self.asked) - 1].split()]
        return reclaim_of([there.get(name, MachineOnLoan(name)) for name in names])


def on_loan(name: str, gang: int = 0, machines: int = 0) -> MachineOnLoan:
    """With the first attempt of the gang on it, if it holds GPUs there."""
    key = AttemptKey(WorkloadId("gang"), AttemptNumber(1))
    part = AttemptOnMachine(key, gang, machines, gpus_elsewhere=gang * (machines - 1))
    return MachineOnLoan(MachineId(name), (part,) if gang else ())


def reclaiming_with(policy: ReclaimingPolicy, base: Policy = FIFO) -> Policy:
    return replace(base, reclaiming=policy)


def attempts(record: RunRecord) -> dict[str, list[tuple[str, float, float, float, str, float]]]:
    """Of each workload its attempts: machine, dispatched, started, ended, how, and what was kept."""
    table, told = record.attempts, dict[str, list[tuple[str, float, float, float, str, float]]]()
    for at in range(len(table)):
        held = record.shares.machine[int(table.first_share[at]) : int(table.first_share[at + 1])].tolist()
        told.setdefault(record.workloads.ids[int(table.workload[at])], []).append(
            (
                "+".join(record.machines.names[number] for number in held),
                float(table.dispatched_s[at]),
                float(table.started_s[at]),
                float(table.ended_s[at]),
                AttemptEnd(int(table.end[at])).name.lower(),
                float(table.progress_kept[at]),
            )
        )
    return told


def machine_events(run: CheckedRun) -> list[tuple[float, str, str]]:
    return [(float(str(r["t"])), str(r["event"]), str(r["machine"])) for r in run.log if "machine" in r]


def not_there(record: RunRecord) -> list[tuple[str, float, float]]:
    return [(record.machines.names[number], from_s, until_s) for number, from_s, until_s in record.machine_down]


LEND_TWO_TAKE_ONE = lending((0, 0), (100, 2), (200, 1))
FOUR = [row("a", 0, 1000, 2), row("b", 1, 400, 2), row("c", 2, 600, 1), row("d", 3, 300, 1)]
"""a fills the machine for training. At 100 b comes to s0, c and d share s1; they work from 110 on."""

FIRST_GOES_BACK = {
    "a": [("t0", 0, 10, 1010, "completed", 1000)],
    # Told at 200 after 90 s of work, saved by 205. d ends at 410, c at 710: only then two GPUs are free in one place.
    "b": [("s0", 100, 110, 205, "reclaimed", 90), ("s1", 710, 723, 1033, "completed", 400)],
    "c": [("s1", 100, 110, 710, "completed", 600)],
    "d": [("s1", 100, 110, 410, "completed", 300)],
}
SECOND_GOES_BACK = {
    "a": [("t0", 0, 10, 1010, "completed", 1000)],
    "b": [("s0", 100, 110, 510, "completed", 400)],
    # Both leave; when b has ended both find room on its machine, and restore 90 s of work.
    "c": [("s1", 100, 110, 205, "reclaimed", 90), ("s0", 510, 523, 1033, "completed", 600)],
    "d": [("s1", 100, 110, 205, "reclaimed", 90), ("s0", 510, 523, 733, "completed", 300)],
}


def test_the_machine_with_the_fewest_workloads_goes_back() -> None:
    run = checked_run(FIFO, FOUR, fleet(), settings=COSTS, loans=LEND_TWO_TAKE_ONE)
    assert attempts(run.record) == FIRST_GOES_BACK
    assert machine_events(run) == [
        (0, "reclaimed", "s0"),
        (0, "reclaimed", "s1"),
        (0, "reclaimed", "s2"),
        (100, "loaned", "s0"),
        (100, "loaned", "s1"),
        (205, "reclaimed", "s0"),
    ]
    assert [(r["t"], r["cause"]) for r in run.log if r["event"] == "evicting"] == [(200, "reclaimed")]
    assert not_there(run.record) == [("s0", 0, 100), ("s1", 0, 100), ("s2", 0, 1033), ("s0", 205, 1033)]
    supply = supply_curve(run.record)
    assert supply.at(np.array([0.0, 99, 100, 204, 205, 1000])).tolist() == [2, 2, 6, 6, 4, 4]


def test_what_inference_lacks_is_logged_and_counted() -> None:
    """It wants back two more than are on loan: what there is goes back, the rest is short."""
    steps = (LoanStep(0, SERVING, 2), LoanStep(200, SERVING, 0, short=2), LoanStep(300, SERVING, 0, short=1))
    run = checked_run(FIFO, FOUR, fleet(), settings=COSTS, loans=LoanSchedule(steps))
    short = [(r["t"], r["region"], r["cluster"], r["machines"]) for r in run.log if r["event"] == "loan_short"]
    assert short == [(200, "r", "serving", 2), (300, "r", "serving", 1)]
    counts = run.record.counts
    assert (counts.reclaims, counts.reclaimed_machines, counts.short_machines) == (1, 2, 3)
    figures = loan_figures_of(run.record)
    assert figures is not None
    assert (figures.inference_gpus, figures.reclaims, figures.short_machines) == (6, 1, 3)
    assert figures.evicted == [r["cause"] for r in run.log if r["event"] == "evicted"].count("reclaimed") > 0


def test_at_random_any_machine_goes_back() -> None:
    seen = []
    for seed in range(8):
        run = checked_run(
            reclaiming_with(RandomMachines()), FOUR, fleet(), settings=COSTS, seed=seed, loans=LEND_TWO_TAKE_ONE
        )
        told = attempts(run.record)
        assert told in (FIRST_GOES_BACK, SECOND_GOES_BACK)
        seen.append(told == FIRST_GOES_BACK)
    assert set(seen) == {True, False}


def test_the_policy_is_told_what_would_have_to_leave() -> None:
    policy = These(["s1 s0"], [])
    rows = [row("gang", 0, 500, 4), row("one", 0, 500, 1)]
    checked_run(reclaiming_with(policy), rows, fleet(), settings=NO_COSTS, loans=lending((0, 3), (100, 1), (600, 3)))
    # The gang has s0 and s1; the small one found the machine for training.
    assert policy.asked == [((on_loan("s0", 2, 2), on_loan("s1", 2, 2), on_loan("s2")), 2)]


def test_the_policy_is_not_told_of_those_who_leave_anyhow() -> None:
    policy = These(["s0", "s1"], [])
    run = checked_run(
        reclaiming_with(policy),
        [row("gang", 0, 500, 4)],
        fleet(),
        settings=COSTS,
        loans=lending((0, 3), (100, 2), (103, 1), (200, 2)),
    )
    gang = AttemptKey(WorkloadId("gang"), AttemptNumber(1))
    assert policy.asked[1] == ((MachineOnLoan(MachineId("s1"), leaving=(gang,)), on_loan("s2")), 1)
    # Both machines go back when the gang has saved its work; it was told once.
    assert [event for event in machine_events(run) if 0 < event[0] < 200] == [
        (105, "reclaimed", "s0"),
        (105, "reclaimed", "s1"),
    ]
    assert sum(record["event"] == "evicting" for record in run.log) == 1


def test_who_has_gone_and_runs_elsewhere_keeps_no_machine() -> None:
    rows = [row("big", 0, 85, 2), row("b", 1, 500, 1), row("a", 94, 500, 1)]
    run = checked_run(FIFO, rows, fleet(1, 1), settings=COSTS, loans=lending((0, 1), (100, 0)))
    told = attempts(run.record)
    # At 100 a has not started and goes to t0 at once; b saves its work until 105, and s0 is back then.
    assert [attempt[:2] for attempt in told["a"]] == [("s0", 94), ("t0", 100)]
    assert told["b"][:1] == [("s0", 1, 11, 105, "reclaimed", 89)]
    assert machine_events(run)[-1] == (105, "reclaimed", "s0")


def test_a_gang_leaves_all_its_machines() -> None:
    policy = These(["s1 s2"], [])
    rows = [row("gang", 0, 500, 4)]
    run = checked_run(reclaiming_with(policy), rows, fleet(), settings=COSTS, loans=lending((0, 3), (100, 1), (600, 2)))
    assert attempts(run.record)["gang"] == [
        ("s0+s1", 0, 10, 105, "reclaimed", 90),
        ("s0+s1", 600, 613, 1023, "completed", 500),
    ]
    # s2 was idle and is back at once; s1 when the gang has saved its work; s0 stays on loan.
    assert [event for event in machine_events(run) if event[0] > 0] == [
        (100, "reclaimed", "s2"),
        (105, "reclaimed", "s1"),
        (600, "loaned", "s1"),
    ]


@pytest.mark.parametrize("policy", [LeastPreemptionCost(), FewestEvictions()], ids=str)
def test_flexible_tasks_leave_without_an_eviction(policy: ReclaimingPolicy) -> None:
    """100 s of work on s0 from 10 on; at twice the speed with s1 from 20 to 40; s2 is the first to go back, being idle."""
    grows = replace(row("grows", 0, 100, 2), tasks=1, min_tasks=1, max_tasks=3)
    run = checked_run(
        reclaiming_with(policy),
        [grows],
        fleet(training=0),
        settings=COSTS,
        loans=lending((0, 3), (30, 2), (40, 1)),
        actions=(ResizeAt(20.0, WorkloadId("grows"), JOB_NAME, 2),),
    )
    assert attempts(run.record)["grows"] == [("s0+s0+s1+s0", 0, 10, 90, "completed", 100)]
    assert [(r["t"], r["speed"]) for r in run.log if r["event"] == "resized"] == [(20, 2.0), (40, 1.0)]
    assert [event for event in machine_events(run) if event[0] > 0] == [
        (30, "reclaimed", "s2"),
        (40, "reclaimed", "s1"),
    ]


def test_who_has_not_started_leaves_at_once() -> None:
    run = checked_run(
        FIFO, [row("a", 95, 100, 2)], fleet(training=0), settings=COSTS, loans=lending((0, 1), (100, 0), (300, 2))
    )
    first, *others = attempts(run.record)["a"]
    assert math.isnan(first[2])
    assert [first[:2] + first[3:]] == [("s0", 95, 100, "reclaimed", 0)]
    assert others == [("s0", 300, 310, 410, "completed", 100)]
    assert machine_events(run)[-3:] == [(100, "reclaimed", "s0"), (300, "loaned", "s0"), (300, "loaned", "s1")]


def test_a_machine_that_is_leaving_may_be_kept_after_all() -> None:
    slow = COSTS.model_copy(update={"costs": CostSettings(container_start_s=0, checkpoint_save_s=50, restore_s=0)})
    run = checked_run(FIFO, [row("a", 0, 100, 2)], fleet(0, 1), settings=slow, loans=lending((0, 1), (10, 0), (30, 1)))
    # It had to save its work until 60; the machine never went back.
    assert attempts(run.record)["a"] == [("s0", 0, 0, 60, "reclaimed", 10), ("s0", 60, 60, 150, "completed", 100)]
    assert machine_events(run) == [(0, "loaned", "s0")]
    assert not_there(run.record) == []


def test_a_machine_that_is_leaving_takes_nothing_new() -> None:
    slow = COSTS.model_copy(update={"costs": CostSettings(container_start_s=0, checkpoint_save_s=50, restore_s=0)})
    rows = [row("a", 0, 100, 1), row("b", 20, 30, 1)]
    run = checked_run(FIFO, rows, fleet(0, 1), settings=slow, loans=lending((0, 1), (10, 0), (200, 1)))
    # One GPU of s0 is idle all the time; b has to wait for it until s0 has been back and is lent again.
    assert attempts(run.record) == {
        "a": [("s0", 0, 0, 60, "reclaimed", 10), ("s0", 200, 200, 290, "completed", 100)],
        "b": [("s0", 200, 200, 230, "completed", 30)],
    }


def test_what_is_lost_while_it_leaves_lets_the_machine_go_at_once() -> None:
    slow = COSTS.model_copy(update={"costs": CostSettings(container_start_s=0, checkpoint_save_s=50, restore_s=0)})
    failures = scripted(fleet(0, 1), [ScriptedFailure("machine s0", 30, 100)])
    run = checked_run(
        FIFO,
        [row("a", 0, 100, 2)],
        fleet(0, 1),
        settings=slow,
        failures=failures,
        loans=lending((0, 1), (10, 0), (120, 1)),
    )
    # It did not come to save its work. Lent again at 120, s0 is repaired at 130.
    assert attempts(run.record)["a"] == [("s0", 0, 0, 30, "machine_lost", 0), ("s0", 130, 130, 230, "completed", 100)]
    assert machine_events(run) == [
        (0, "loaned", "s0"),
        (30, "machine_down", "s0"),
        (30, "reclaimed", "s0"),
        (120, "loaned", "s0"),
        (130, "machine_up", "s0"),
    ]
    assert not_there(run.record) == [("s0", 30, 130)]


def test_failing_and_being_on_loan_are_two_things() -> None:
    place = fleet(0, 2)
    failures = scripted(
        place,
        [
            ScriptedFailure("machine s0", 50, 100),  # 50 to 150, not on loan
            ScriptedFailure("machine s1", 300, 100),  # 300 to 400, on loan with work on it
            ScriptedFailure("machine s0", 420, 30),  # 420 to 450, on loan, goes back meanwhile
        ],
    )
    rows = [row("a", 0, 1000, 2), row("b", 160, 100, 2)]
    run = checked_run(
        FIFO, rows, place, settings=NO_COSTS, failures=failures, loans=lending((100, 1), (200, 2), (430, 1))
    )
    assert attempts(run.record) == {
        # At 100 s0 is down, so s1 is lent.
        "a": [
            ("s1", 100, 100, 300, "machine_lost", 0),
            ("s0", 300, 300, 420, "machine_lost", 0),
            ("s1", 420, 420, 1420, "completed", 1000),
        ],
        "b": [("s0", 200, 200, 300, "completed", 100)],
    }
    assert not_there(run.record) == [
        ("s0", 0, 200),
        ("s1", 0, 100),
        ("s1", 300, 400),
        ("s0", 420, 1420),
    ]
    assert (430, "reclaimed", "s0") in machine_events(run)


def test_what_only_inference_machines_could_host_waits_until_they_are_lent() -> None:
    run = checked_run(FIFO, [row("a", 0, 50, 2)], fleet(0, 1), settings=NO_COSTS, loans=lending((500, 1)))
    assert run.starts() == {"a": 500}
    failing = scripted(fleet(0, 1), [ScriptedFailure("machine s0", 50, 100)])
    never = checked_run(
        FIFO, [row("a", 0, 50, 2)], fleet(0, 1), settings=NO_COSTS, failures=failing, loans=lending((0, 0))
    )
    assert never.record.broken_off
    assert never.record.ended_s < 1000, "nothing but failures would go on for ever"


def test_a_log_tells_of_loans() -> None:
    run = checked_run(FIFO, FOUR, fleet(), settings=COSTS, loans=LEND_TWO_TAKE_ONE)
    told = record_of_log(run.log, fleet(), policy="fifo", trace="test", seed=1)
    assert told.machine_down == run.record.machine_down
    assert attempts(told) == attempts(run.record)


@pytest.mark.parametrize("answer", ["s0", "s0 s0", "s0 t0", "s0 s1 s2", "s0 s9", ""])
def test_never_takes_what_is_no_choice(answer: str) -> None:
    policy = reclaiming_with(These([answer], []))
    with pytest.raises(BadReclaim, match=r"these is asked for 2 of the machines s0, s1, s2 and chooses (s0|none)"):
        checked_run(policy, [row("a", 0, 500, 2)], fleet(), loans=lending((0, 3), (100, 1)))


def test_a_schedule_of_another_fleet_is_refused() -> None:
    with pytest.raises(FormatError, match="cluster serving has 3"):
        checked_run(FIFO, FOUR, fleet(), loans=lending((0, 4)))


@st.composite
def lending_worlds(draw: st.DrawFn) -> tuple[SmallWorld, LoanSchedule]:
    """A few machines that come and go all the time, and fail; three tenants of whom each is in the others' way."""
    place = fleet(draw(st.integers(0, 1)), draw(st.integers(2, 4)))
    serving = sum(1 for _ in place.regions[0].clusters[-1].machines())
    rows = tuple(
        row(
            f"w{number:02}",
            10.0 * draw(st.integers(0, 60)),
            10.0 * draw(st.integers(1, 60)),
            draw(st.sampled_from((1, 1, 2, 2, 4))),
            draw(st.sampled_from(TENANTS)),
        )
        for number in range(draw(st.integers(3, 14)))
    )
    tenants = tuple(
        Tenant(TenantId(name), priority, Quota.of({ANY_GPU_MODEL: draw(st.sampled_from((2, 4, 8)))}))
        for priority, name in enumerate(TENANTS)
    )
    counts = draw(st.lists(st.integers(0, serving), min_size=5, max_size=40))
    spacing_s = draw(st.sampled_from((20.0, 50.0, 90.0)))
    # In the end everything is lent, so that runs end.
    steps = [(spacing_s * number, count) for number, count in enumerate(counts)]
    fails = draw(st.booleans())
    chosen = SimulationSettings(
        costs=CostSettings(
            container_start_s=draw(st.sampled_from((0.0, 30.0))),
            checkpoint_save_s=draw(st.sampled_from((0.0, 30.0, 70.0))),
            restore_s=draw(st.sampled_from((0.0, 10.0))),
            checkpoint_interval_s=100.0,
        ),
        failures=FailureSettings(machine_mtbf_s=2000.0 if fails else 0.0, machine_mttr_s=100.0),
        scan_period_s=draw(st.sampled_from((0.0, 20.0))),
    )
    return SmallWorld(rows, place, tenants, chosen), lending(*steps, (spacing_s * len(steps), serving))


@pytest.mark.parametrize("policy", ["fifo", "mast", "las"])
@settings(max_examples=examples(100))
@given(drawn=lending_worlds(), reclaiming=st.sampled_from((FewestWorkloadsFirst(), RandomMachines())))
def test_never_at_work_where_inference_is_served(
    policy: str, drawn: tuple[SmallWorld, LoanSchedule], reclaiming: ReclaimingPolicy
) -> None:
    """From the tables alone, beside what the validator finds in the log."""
    world, loans = drawn
    base = policies()[policy]
    run = checked_run(
        reclaiming_with(reclaiming, base),
        world.rows,
        world.fleet,
        world.tenants if base.scans else None,
        world.settings,
        loans=loans,
    )
    record, table = run.record, run.record.attempts
    for at in range(len(table)):
        held = set(record.shares.machine[int(table.first_share[at]) : int(table.first_share[at + 1])].tolist())
        for number, from_s, until_s in record.machine_down:
            overlap_s = min(float(table.ended_s[at]), until_s) - max(float(table.dispatched_s[at]), from_s)
            assert number not in held or overlap_s <= 0, (at, number, from_s, until_s)
    # What was asked to leave is gone as soon as its work can be saved: nothing holds a machine beyond that.
    asked: dict[tuple[str, int], float] = {}
    for event in run.log:
        attempt = (str(event.get("workload")), int(str(event.get("attempt", 0))))
        if event["event"] == "evicting" and event["cause"] == "reclaimed":
            asked[attempt] = float(str(event["t"]))
        elif event["event"] in {"evicted", "completed"} and attempt in asked:
            assert float(str(event["t"])) <= asked.pop(attempt) + world.settings.costs.checkpoint_save_s


def busy_log(seed: int = 3) -> str:
    """Many workloads on machines that come and go; who goes is drawn."""
    rng = np.random.default_rng(5)
    rows: list[TraceRow] = [
        row(f"w{number:02}", 20.0 * number, float(rng.integers(50, 900)), int(rng.integers(1, 5)))
        for number in range(60)
    ]
    loans = lending(*((100.0 * step, int(rng.integers(0, 9))) for step in range(40)), (5000.0, 8))
    run = checked_run(reclaiming_with(RandomMachines()), rows, fleet(2, 8), settings=COSTS, seed=seed, loans=loans)
    assert np.count_nonzero(run.record.attempts.end == AttemptEnd.RECLAIMED) > 20
    return "\n".join(json.dumps(record, sort_keys=True) for record in run.log)


def test_same_seed_same_bytes() -> None:
    assert busy_log() != busy_log(4)
    told = assert_same_output("from tests.simulator.engine.test_loans import busy_log; print(busy_log())")
    assert told.strip() == busy_log()
