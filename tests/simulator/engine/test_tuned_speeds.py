"""Work whose speed follows its CPUs and memory, on virtual time: worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from domain.fleet import Fleet
from domain.identifiers import JobName, TenantId, WorkloadId
from domain.resources import TaskResources
from domain.sensitivity import SensitivityProfile
from domain.workload import Emulated, JobSpecification, Workload, WorkloadSpecification
from formats.problems import FormatError
from formats.trace import TraceRow
from formats.trace_workload import JOB_NAME, MODEL_LABEL
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.actions import RetuneAt
from simulator.policies.policy import Policy
from simulator.policies.registry import policies
from simulator.validate import validate
from simulator.validation.report import Invariant, ValidationReport
from tests.simulator.engine.checked_run import NO_COSTS, Record, machine, region, unlimited

FIFO = policies()["fifo"]
PROPORTIONAL = policies()["synergy_proportional"]
W = WorkloadId("w")
FLEET = Fleet((region("east", [replace(machine("e0", 4), cpus=16.0, memory_gib=64.0)]),))
"""Four GPUs, with 4 CPUs and 16 GiB for each."""
HUNGRY = SensitivityProfile((1.0, 4.0, 16.0), (16.0,), ((0.5,), (1.0,), (3.0,)))
PROFILES = {"hungry": HUNGRY}


def row(name: str, submit_s: float, duration_s: float, model: str = "hungry") -> TraceRow:
    return TraceRow(WorkloadId(name), TenantId("t"), submit_s, duration_s, 1, model=model)


def run(
    rows: Sequence[TraceRow],
    *actions: RetuneAt,
    policy: Policy = FIFO,
    settings: SimulationSettings = NO_COSTS,
    profiles: Mapping[str, SensitivityProfile] = PROFILES,
) -> tuple[dict[str, float], ValidationReport, list[Record]]:
    """When each workload ends, and what the validator says of the log."""
    log: list[Record] = []
    given = SimulationInput("test", rows, FLEET, unlimited(rows), actions=actions, profiles=profiles)
    record = Simulation(given, policy, settings, 1, lambda event: log.append(event.as_json())).run()
    ends = {str(name): float(end) for name, end in zip(record.workloads.ids, record.workloads.ended_s, strict=True)}
    return ends, validate(log, FLEET, given.tenants, complete=True, profiles=profiles), log


def retune(t_s: float, cpus: float) -> RetuneAt:
    return RetuneAt(t_s, W, JOB_NAME, cpus, None)


def test_the_proportional_share_is_the_speed_of_the_trace() -> None:
    ends, report, _ = run([row("w", 0.0, 100.0)])
    assert ends == {"w": 100.0}
    assert report.valid
    assert report.checks[Invariant.I7] == 1


def test_progress_is_the_sum_over_all_retunes() -> None:
    ends, report, log = run([row("w", 0.0, 100.0)], retune(10.0, 16.0), retune(20.0, 10.0))
    # 10 s at speed 1, 10 s at speed 3, and what is left at speed 2.
    assert ends == {"w": 20.0 + (100.0 - 10.0 - 30.0) / 2.0}
    assert [told["speed"] for told in log if told["event"] == "tuned"] == [3.0, 2.0]
    assert report.valid, str(report)


def test_the_validator_finds_what_is_slower_than_with_its_share() -> None:
    ends, report, _ = run([row("w", 0.0, 100.0)], retune(10.0, 1.0))
    assert ends == {"w": 10.0 + 90.0 / 0.5}
    assert report.violations_by_invariant == {Invariant.I7: 1}
    assert "0.5 times as fast" in str(report)


def test_the_validator_finds_a_speed_that_no_profile_allows() -> None:
    _, _, log = run([row("w", 0.0, 100.0)], retune(10.0, 16.0))
    slower = {"hungry": replace(HUNGRY, throughput=((0.5,), (1.0,), (2.0,)))}
    report = validate(log, FLEET, unlimited([row("w", 0.0, 100.0)]), complete=True, profiles=slower)
    assert report.violations_by_invariant == {Invariant.I9: 1}


def test_shares_that_are_rounded_are_not_found_slower() -> None:
    """A third of 16 CPUs is no whole number of thousandths: each GPU comes with the ones that are whole."""
    fleet = Fleet((region("east", [replace(machine("e0", 3), cpus=16.0, memory_gib=64.0)]),))
    rows = [replace(row("w", 0.0, 1000.0), gpus=3)]
    given = SimulationInput("test", rows, fleet, unlimited(rows), profiles=PROFILES)
    log: list[Record] = []
    Simulation(given, policies()["synergy_tune"], NO_COSTS, 1, lambda event: log.append(event.as_json())).run()
    report = validate(log, fleet, given.tenants, complete=True, profiles=PROFILES)
    assert report.valid, str(report)


def test_a_model_without_a_profile_is_refused_with_what_was_probably_meant() -> None:
    with pytest.raises(FormatError, match="model of w: 'hungri' has no sensitivity profile; did you mean hungry"):
        run([row("w", 0.0, 100.0, "hungri")])
    ends, _, _ = run([row("w", 0.0, 100.0, "")])
    assert ends == {"w": 100.0}


def test_without_profiles_models_mean_nothing() -> None:
    ends, report, _ = run([row("w", 0.0, 100.0, "whatever")], retune(10.0, 1.0), profiles={})
    assert ends == {"w": 100.0}
    assert report.valid


FOUR_AT_ONCE = [row(f"long{number}", 0.0, 1000.0) for number in range(4)]


def ordered(name: str, **changes: float) -> SimulationSettings:
    return NO_COSTS.model_copy(update={"ordering": name, "scan_period_s": 10.0, **changes})


def test_first_in_first_out_starts_in_order() -> None:
    rows = [*FOUR_AT_ONCE, row("second", 2.0, 50.0), row("first", 1.0, 100.0)]
    ends, _, _ = run(rows, policy=PROPORTIONAL, settings=ordered("fifo"))
    assert ends["first"] == 1100.0
    assert ends["second"] == 1050.0


def test_the_shortest_remaining_evicts_the_longest() -> None:
    ends, _, _ = run([*FOUR_AT_ONCE, row("short", 10.0, 50.0)], policy=PROPORTIONAL, settings=ordered("srtf"))
    assert ends["short"] == 60.0


def test_the_least_attained_service_evicts_what_had_its_share() -> None:
    rows = [row(f"long{number}", 0.0, 10_000.0) for number in range(4)]
    ends, _, _ = run([*rows, row("new", 4000.0, 50.0)], policy=PROPORTIONAL, settings=ordered("las"))
    assert ends["new"] == 4050.0


def test_finish_time_fairness_starts_what_sharing_slows_down_most() -> None:
    # One GPU becomes free at 500. The short one would take 10 times as long as alone, the long one 1.5 times.
    rows = [row("freed", 0.0, 500.0), *FOUR_AT_ONCE[:3], row("long", 1.0, 1000.0), row("short", 50.0, 50.0)]
    ends, _, _ = run(rows, policy=PROPORTIONAL, settings=ordered("ftf"))
    assert ends["short"] == 550.0
    assert ends["long"] == 1550.0
    in_order, _, _ = run(rows, policy=PROPORTIONAL, settings=ordered("fifo"))
    assert in_order["long"] == 1500.0


def test_an_order_that_there_is_not_is_refused() -> None:
    with pytest.raises(FormatError, match="stf is no order; did you mean srtf"):
        run(FOUR_AT_ONCE, policy=PROPORTIONAL, settings=ordered("stf"))
    with pytest.raises(FormatError, match="fifo has an order of its own"):
        run(FOUR_AT_ONCE, policy=FIFO, settings=ordered("srtf"))


def test_auctions_wait_for_their_period() -> None:
    rows = [row("w", 0.0, 100.0), row("x", 1.0, 100.0)]
    ends, _, _ = run(rows, policy=PROPORTIONAL, settings=ordered("fifo", auction_period_s=300.0))
    assert ends == {"w": 100.0, "x": 400.0}


@pytest.mark.parametrize("first", ["reads", "trains"])
def test_a_job_without_gpus_bounds_no_speed_wherever_it_stands(first: str) -> None:
    """The validator once took the first job of a workload for one that has GPUs."""
    reads = JobSpecification(JobName("reads"), 1, TaskResources(gpus=0, cpus=1.0, memory_gib=1.0), Emulated(10.0))
    trains = JobSpecification(JobName("trains"), 1, TaskResources(gpus=1), Emulated(100.0))
    jobs = (reads, trains) if first == "reads" else (trains, reads)
    specification = WorkloadSpecification("w", TenantId("t"), jobs, labels=((MODEL_LABEL, "hungry"),))
    faster = RetuneAt(10.0, W, trains.name, 12.0, None)
    tenants = unlimited([row("w", 0.0, 100.0)])
    given = SimulationInput(
        "test",
        (),
        FLEET,
        tenants,
        workloads=(Workload(W, specification, 0.0),),
        actions=(faster,),
        profiles=PROFILES,
    )
    log: list[Record] = []
    Simulation(given, FIFO, NO_COSTS, 1, lambda event: log.append(event.as_json())).run()
    assert [told["speed"] for told in log if told["event"] == "tuned"] == [pytest.approx(1.0 + 2.0 * 8.0 / 12.0)]
    report = validate(log, FLEET, tenants, complete=True, profiles=PROFILES)
    assert report.valid, str(report)
