"""`tiresias_las` and `tiresias_gittins` in simulations: ranked event by event, and by scan passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.eviction import EvictionRule
from domain.service_scope import DistributionScope
from formats.trace import TraceRow
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.ordering.gittins import GittinsOrdering
from simulator.baselines.tiresias import TIRESIAS_GITTINS, TIRESIAS_LAS
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.policy import Policy
from simulator.results.run_record import AttemptEnd
from tests.examples import examples
from tests.simulator.engine.checked_run import NO_COSTS, CheckedRun, Record, checked_run, one_region, row, unlimited

FREE = EvictionRule()
"""As in the paper."""


def las(*thresholds: float, knob: float | None = None, limit_s: float | None = None) -> Policy:
    return replace(TIRESIAS_LAS, levels=AttainedService(thresholds, knob, limit_s), eviction=FREE)


def gittins(*thresholds: float) -> Policy:
    levels, ordering = AttainedService(thresholds), GittinsOrdering(thresholds)
    return replace(TIRESIAS_GITTINS, levels=levels, ordering=ordering, eviction=FREE)


def by_passes(policy: Policy) -> Policy:
    """The same, ranked by scan passes."""
    return replace(policy, scans=True)


AT_ONCE = NO_COSTS.model_copy(update={"scan_period_s": 0.0})


def run(policy: Policy, rows: list[TraceRow], gpus: int) -> CheckedRun:
    """On one machine; under scan passes the same."""
    result = checked_run(policy, rows, one_region(1, gpus), settings=AT_ONCE)
    ranked = checked_run(by_passes(policy), rows, one_region(1, gpus), settings=AT_ONCE)
    assert (ranked.starts(), ranked.ends()) == (result.starts(), result.ends())
    return result


def time_of(event: Record) -> float:
    time_s = event["t"]
    assert isinstance(time_s, float)
    return time_s


def promoted(result: CheckedRun) -> list[tuple[object, object]]:
    return [(event["t"], event["workload"]) for event in result.log if event["event"] == "promoted"]


def attempts_of(result: CheckedRun, name: str) -> list[float]:
    """When each attempt of the workload started."""
    index = result.record.workloads.ids.index(name)
    table = result.record.attempts
    return [float(started_s) for started_s in table.started_s[table.workload == index]]


def test_those_that_were_evicted_go_on_by_their_first_start() -> None:
    """`late` was submitted first and started second: when both have been evicted, `early` goes on first."""
    rows = [
        row("holds", 0.0, 50.0, 1),
        row("late", 1.0, 1_000.0, 2),
        row("early", 2.0, 1_000.0, 1),
        row("new", 450.0, 500.0, 2),
    ]
    result = run(las(200.0), rows, 2)
    assert attempts_of(result, "early") == [2.0, 950.0]
    assert attempts_of(result, "late") == [202.0, 1_750.0]


def test_the_starving_are_promoted_and_not_demoted_right_away() -> None:
    """`old` runs 100 s, is evicted, waits 200 s among newcomers, and then takes its turn at the best level; and again."""
    rows = [row("old", 0.0, 1_000.0, 1), *(row(f"new{n}", 100.0 + 90.0 * n, 90.0, 1) for n in range(8))]
    result = run(las(100.0, knob=2.0), rows, 1)
    assert promoted(result) == [(300.0, "old"), (670.0, "old")]
    # It evicts none at the best level, but goes before all there that never started; the last newcomer ends at 1,020.
    assert attempts_of(result, "old") == [0.0, 370.0, 740.0, 1_020.0]
    assert (result.record.counts.demotions, result.record.counts.promotions) == (3, 2)
    without = run(las(100.0), rows, 1)
    assert attempts_of(without, "old") == [0.0, 820.0]
    assert (without.record.counts.demotions, without.record.counts.promotions) == (1, 0)


def test_the_service_before_a_promotion_is_not_lost() -> None:
    rows = [row("old", 0.0, 300.0, 1), row("new", 100.0, 250.0, 1), row("newer", 101.0, 90.0, 1)]
    result = run(las(100.0, knob=1.0), rows, 1)
    assert promoted(result) == [(200.0, "old"), (300.0, "new"), (400.0, "old"), (500.0, "new")]
    assert result.ends() == {"old": 500.0, "new": 550.0, "newer": 640.0}, "the work goes on from its checkpoint"


def test_gittins_goes_by_what_has_completed() -> None:
    """All that completed took 100 GPU-seconds or 10,000. Of the two that were evicted, `close` has attained 60, so that it
    may end within 40 more; `far` is beyond 100 and has a long way to go. By start `far` would go first."""
    samples = [100.0] * 50 + [10_000.0] * 50
    rows = [row("far", 0.0, 1_000.0, 1), row("close", 120.0, 100.0, 1), row("burst", 180.0, 45.0, 1)]
    starts: dict[str, list[list[float]]] = {}
    for name, policy in (("gittins", gittins(50.0, 5_000.0)), ("las", las(50.0, 5_000.0))):
        for ranked in (policy, by_passes(policy)):
            given_input = SimulationInput("test", rows, one_region(1, 1), unlimited(rows), samples_gpu_s=samples)
            attempts = simulate(given_input, ranked, AT_ONCE, seed=1).attempts
            starts.setdefault(name, []).append(attempts.started_s[attempts.workload == 1].tolist())
    assert starts["gittins"] == [[120.0, 225.0]] * 2
    assert starts["las"] == [[120.0, 1_105.0]] * 2


def test_before_the_first_completion_gittins_is_las() -> None:
    rows = [row(f"j{number}", 10.0 * number, 2_000.0, 1 + number % 3) for number in range(6)]
    by_index, by_start = run(gittins(300.0), rows, 4), run(las(300.0), rows, 4)
    first_end = min(by_start.ends().values())
    before = [event for event in by_start.log if time_of(event) < first_end]
    assert [event for event in by_index.log if time_of(event) < first_end] == before


TRACES = st.lists(
    st.tuples(st.floats(0.0, 3_000.0), st.floats(1.0, 900.0), st.sampled_from([1, 1, 2, 4])), min_size=1, max_size=14
)


@settings(max_examples=examples(40))
@given(TRACES, st.floats(0.25, 4.0))
def test_never_does_the_demoted_wait_longer_than_the_knob_allows(
    jobs: list[tuple[float, float, int]], knob: float
) -> None:
    """Below the best level none waits for longer than the knob times what it ran since its promotion: by the log."""
    rows = [row(f"j{n:02}", submit_s, duration_s, gpus) for n, (submit_s, duration_s, gpus) in enumerate(jobs)]
    result = checked_run(las(100.0, 600.0, knob=knob), rows, one_region(1, 4))
    ran_s: dict[object, float] = {}
    since_s: dict[object, float] = {}
    gpu_s: dict[object, float] = {}
    gpus = {
        name: int(count) for name, count in zip(result.record.workloads.ids, result.record.workloads.gpus, strict=True)
    }
    for event in result.log:
        now, name = time_of(event), event.get("workload")
        if event["event"] == "promoted":
            assert now == pytest.approx(since_s[name] + knob * ran_s[name])
            assert event["level"] == 0
            ran_s[name] = gpu_s[name] = 0.0
        elif event["event"] == "started":
            waited_s = now - since_s.get(name, now)
            if gpu_s.get(name, 0.0) >= 100.0:
                assert waited_s <= knob * ran_s[name] + 1e-6
            since_s[name] = now
        elif event["event"] == "evicted":
            ran_s[name] = ran_s.get(name, 0.0) + now - since_s[name]
            gpu_s[name] = gpu_s.get(name, 0.0) + (now - since_s[name]) * gpus[str(name)]
            since_s[name] = now


@settings(max_examples=examples(25))
@given(TRACES)
@pytest.mark.parametrize("policy", [TIRESIAS_LAS, TIRESIAS_GITTINS], ids=lambda policy: policy.name)
def test_never_do_passes_and_events_decide_otherwise(policy: Policy, jobs: list[tuple[float, float, int]]) -> None:
    rows = [row(f"j{n:02}", submit_s, duration_s, gpus) for n, (submit_s, duration_s, gpus) in enumerate(jobs)]
    quick = replace(policy, levels=AttainedService((100.0, 600.0), 1.0))
    if isinstance(policy.ordering, GittinsOrdering):
        quick = replace(quick, ordering=GittinsOrdering((100.0, 600.0)))
    scope = {"distribution": DistributionScope.TENANT}
    for settings_of_run in (AT_ONCE, AT_ONCE.model_copy(update=scope)):
        by_event = checked_run(quick, rows, one_region(1, 4), settings=settings_of_run)
        by_pass = checked_run(by_passes(quick), rows, one_region(1, 4), settings=settings_of_run)
        assert by_pass.starts() == by_event.starts()
        assert by_pass.ends() == by_event.ends()


STORMY = [(0.0, 30_000.0, 4), (10.0, 30_000.0, 4), (20.0, 30_000.0, 4)]
"""Three that want all GPUs for long: without bounds they evict each other."""


def test_there_are_evictions_to_be_bounded() -> None:
    assert _evictions_within_bounds(STORMY) > 0


@given(TRACES)
@settings(max_examples=examples(25))
def test_never_is_there_a_storm_by_default(jobs: list[tuple[float, float, int]]) -> None:
    _evictions_within_bounds(jobs)


def _evictions_within_bounds(jobs: list[tuple[float, float, int]]) -> int:
    """How many there are under the defaults of the policy, none of them too early or too often."""
    rows = [row(f"j{n:02}", submit_s, 10 * duration_s, gpus) for n, (submit_s, duration_s, gpus) in enumerate(jobs)]
    attempts = checked_run(TIRESIAS_LAS, rows, one_region(1, 4)).record.attempts
    bounds = TIRESIAS_LAS.eviction
    preempted = attempts.end == AttemptEnd.PREEMPTED
    ran_s = (attempts.ended_s - attempts.started_s)[preempted]
    assert (ran_s >= bounds.minimum_run_time_s - 1e-6).all()
    assert bounds.evictions_per_workload_and_hour is not None
    for workload in set(attempts.workload[preempted].tolist()):
        times_s = np.sort(attempts.ended_s[preempted & (attempts.workload == workload)])
        limit = bounds.evictions_per_workload_and_hour
        assert (times_s[limit:] - times_s[:-limit] >= 3600.0 - 1e-6).all() or len(times_s) <= limit
    return int(preempted.sum())
