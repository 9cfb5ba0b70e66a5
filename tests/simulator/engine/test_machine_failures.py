"""Failures and repairs: their statistics, what fails together, and what they cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from domain.fleet import Fleet
from domain.identifiers import TenantId, WorkloadId
from formats.trace import TraceRow
from formats.trace_workload import JOB_NAME
from simulator.engine.failures import FailureDomain, Failures, failure_domains
from simulator.engine.settings import CostSettings, FailureSettings, SimulationSettings
from simulator.inputs.actions import ResizeAt
from simulator.policies.registry import policies
from simulator.results.run_record import AttemptEnd, RunRecord
from tests.examples import examples
from tests.simulator.engine.checked_run import CheckedRun, checked_run, machine, one_region, region, row
from tests.simulator.engine.small_worlds import SmallWorld, small_worlds

MTBF_S, MTTR_S = 10_000.0, 500.0
STANDARD_ERRORS = 4.0


def long_run(failures: FailureSettings, fleet: Fleet, length_s: float, interval_s: float = 0.0) -> CheckedRun:
    """One workload without GPUs of its own machine keeps the run going; failures are watched on the others."""
    costs = CostSettings(container_start_s=0.0, checkpoint_save_s=0.0, restore_s=0.0, checkpoint_interval_s=interval_s)
    chosen = SimulationSettings(costs=costs, failures=failures, stop_after_s=length_s)
    return checked_run(policies()["fifo"], [row("a", 0.0, 1e8, 1)], fleet, settings=chosen, seed=3)


def test_times_between_failures_and_to_repair_are_exponential_with_the_given_means() -> None:
    failures = Failures([FailureDomain("machine", ((0, 0),), MTBF_S, MTTR_S)], seed=1)
    count = 20_000
    for draw, mean_s in ((failures.next_failure_s, MTBF_S), (failures.next_repair_s, MTTR_S)):
        times_s = np.array([draw(0, 100.0) - 100.0 for _ in range(count)])
        assert times_s.min() > 0
        assert abs(times_s.mean() - mean_s) < STANDARD_ERRORS * mean_s / math.sqrt(count)
        # Exponential: the standard deviation is the mean, and a fraction 1/e lives longer than the mean.
        assert times_s.std() == pytest.approx(mean_s, rel=0.05)
        assert float((times_s > mean_s).mean()) == pytest.approx(1 / math.e, abs=0.015)


def test_in_a_run_machines_are_down_as_often_and_as_long_as_they_should() -> None:
    machines, length_s = 20, 400_000.0
    record = long_run(
        FailureSettings(machine_mtbf_s=MTBF_S, machine_mttr_s=MTTR_S), one_region(machines, 1), length_s
    ).record
    cycles = machines * length_s / (MTBF_S + MTTR_S)
    assert abs(len(record.machine_down) - cycles) < STANDARD_ERRORS * math.sqrt(cycles)
    down_s = sum(until_s - from_s for _, from_s, until_s in record.machine_down)
    share = down_s / (machines * length_s)
    expected = MTTR_S / (MTBF_S + MTTR_S)
    assert abs(share - expected) < STANDARD_ERRORS * expected * math.sqrt(2 / cycles)
    assert {number for number, _, _ in record.machine_down} == set(range(machines))


def two_by_two() -> Fleet:
    """Two regions of two racks of two machines."""
    return Fleet(
        tuple(
            region(name, *([machine(f"{name}{rack}{place}", 1) for place in range(2)] for rack in range(2)))
            for name in ("r0", "r1")
        )
    )


def down_together(record: RunRecord) -> set[frozenset[str]]:
    """The sets of machines that went down in the same instant."""
    at: dict[float, set[str]] = {}
    for number, from_s, _ in record.machine_down:
        at.setdefault(from_s, set()).add(record.machines.names[number])
    return {frozenset(names) for names in at.values()}


def test_a_rack_goes_down_and_comes_up_together() -> None:
    record = long_run(FailureSettings(rack_mtbf_s=MTBF_S, rack_mttr_s=MTTR_S), two_by_two(), 300_000.0).record
    racks = {frozenset(f"{name}{rack}{place}" for place in range(2)) for name in ("r0", "r1") for rack in range(2)}
    assert down_together(record) == racks
    spans = {(from_s, until_s) for _, from_s, until_s in record.machine_down}
    assert len(record.machine_down) == 2 * len(spans) > 100


def test_a_power_domain_is_so_many_racks_of_one_region() -> None:
    chosen = FailureSettings(power_domain_mtbf_s=MTBF_S, power_domain_mttr_s=MTTR_S, racks_per_power_domain=2)
    record = long_run(chosen, two_by_two(), 300_000.0).record
    regions = {frozenset(f"{name}{rack}{place}" for rack in range(2) for place in range(2)) for name in ("r0", "r1")}
    assert down_together(record) == regions
    three = FailureSettings(power_domain_mtbf_s=1.0, racks_per_power_domain=3)
    assert [len(domain.members) for domain in failure_domains(two_by_two(), three)] == [4, 4]
    one = FailureSettings(power_domain_mtbf_s=1.0, racks_per_power_domain=1)
    assert [len(domain.members) for domain in failure_domains(two_by_two(), one)] == [2, 2, 2, 2]


def test_a_machine_is_down_while_any_cause_lasts() -> None:
    chosen = FailureSettings(machine_mtbf_s=1.0, rack_mtbf_s=1.0, power_domain_mtbf_s=1.0, racks_per_power_domain=2)
    domains = failure_domains(two_by_two(), chosen)
    failures = Failures(domains, seed=1)
    assert [domain.what.split()[0] for domain in domains] == ["machine"] * 8 + ["rack"] * 4 + ["power"] * 2
    assert failures.fail(0) == ((0, 0),)
    assert failures.fail(8) == ((0, 1),), "the first machine of the rack was down already"
    assert failures.fail(12) == ((0, 2), (0, 3))
    assert failures.repair(8) == ()
    assert failures.repair(0) == ()
    assert failures.repair(12) == ((0, 0), (0, 1), (0, 2), (0, 3))


def test_what_is_switched_off_never_fails() -> None:
    assert failure_domains(two_by_two(), FailureSettings()) == ()


@pytest.mark.parametrize("interval_s", [0.0, 700.0])
def test_lost_is_the_work_after_the_last_checkpoint(interval_s: float) -> None:
    chosen = FailureSettings(machine_mtbf_s=MTBF_S, machine_mttr_s=MTTR_S)
    record = long_run(chosen, one_region(1, 1), 500_000.0, interval_s).record
    table = record.attempts
    lost = np.flatnonzero(table.end == AttemptEnd.MACHINE_LOST)
    assert len(lost) > 20
    worked_s = (table.ended_s - table.started_s)[lost]
    reached_s = table.progress_at_start[lost] + worked_s
    np.testing.assert_allclose(table.progress_at_end[lost], reached_s, rtol=1e-9)
    safe_s = np.floor(worked_s / interval_s) * interval_s if interval_s else np.zeros(len(lost))
    np.testing.assert_allclose(table.progress_kept[lost], table.progress_at_start[lost] + safe_s, rtol=1e-9)


@settings(max_examples=examples(60))
@given(world=small_worlds(failing=True))
def test_never_on_a_machine_that_is_down(world: SmallWorld) -> None:
    """From the tables alone, beside what the validator finds in the log."""
    record = checked_run(
        policies()["mast"], world.rows, world.fleet, world.tenants, world.settings, tables=world.tables
    ).record
    table = record.attempts
    for at in range(len(table)):
        held = set(record.shares.machine[int(table.first_share[at]) : int(table.first_share[at + 1])].tolist())
        for number, from_s, until_s in record.machine_down:
            overlap_s = min(float(table.ended_s[at]), until_s) - max(float(table.dispatched_s[at]), from_s)
            assert number not in held or overlap_s <= 0, (at, number, from_s, until_s)


class Timetable(Failures):
    """Each domain fails once, at a given time, and is down for 500 s."""

    def __init__(self, fleet: Fleet, at_s: dict[int, float]) -> None:
        super().__init__(failure_domains(fleet, FailureSettings(machine_mtbf_s=1.0, machine_mttr_s=1.0)), seed=1)
        self._at_s = at_s

    def next_failure_s(self, domain: int, now: float) -> float:
        at_s = self._at_s.get(domain, math.inf)
        return at_s if at_s >= now else math.inf

    def next_repair_s(self, domain: int, now: float) -> float:
        return now + 500.0


def grown_run(at_s: dict[int, float]) -> CheckedRun:
    """w has its base task on machine 0 and from 100 s on a flexible one on machine 1, with twice the speed."""
    rows = [TraceRow(WorkloadId("w"), TenantId("t"), 0.0, 2000.0, 1, tasks=1, min_tasks=1, max_tasks=2)]
    fleet = one_region(2, 1)
    actions = [ResizeAt(100.0, WorkloadId("w"), JOB_NAME, 2)]
    return checked_run(policies()["fifo"], rows, fleet, failures=Timetable(fleet, at_s), actions=actions)


def test_an_attempt_goes_on_without_the_flexible_task_that_a_machine_takes_with_it() -> None:
    """100 s of work by 100 s, 400 more by 300 s, the other 1500 alone."""
    run = grown_run({1: 300.0})
    assert run.ends()["w"] == 1800.0
    assert not [told for told in run.log if told["event"] in {"evicting", "evicted"}]
    resized = [told for told in run.log if told["event"] == "resized"]
    assert [(told["t"], told.get("cause")) for told in resized] == [(100.0, None), (300.0, "machine_lost")]
    assert resized[1]["lost"] == [{"job": JOB_NAME, "task": 1}]
    placement = resized[1]["placement"]
    assert isinstance(placement, list)
    assert [placed["task"] for placed in placement if isinstance(placed, dict)] == [0]


def test_the_loss_of_its_base_task_ends_the_attempt() -> None:
    run = grown_run({0: 300.0})
    (evicted,) = [told for told in run.log if told["event"] == "evicted"]
    assert (evicted["t"], evicted["cause"]) == (300.0, "machine_lost")
    assert run.ends()["w"] == 300.0 + 2000.0, "nothing was saved, and it starts again at once where it is left room"


def test_the_loss_of_both_at_once_ends_it_too() -> None:
    run = grown_run({0: 300.0, 1: 300.0})
    (evicted,) = [told for told in run.log if told["event"] == "evicted"]
    assert evicted["cause"] == "machine_lost"
