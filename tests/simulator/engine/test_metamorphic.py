"""What must come of it when the input is changed in a way whose effect is known: times, names, regions, order, splits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.eviction import EvictionRule
from domain.fleet import Cluster, Fleet, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    ClusterId,
    GpuModel,
    RackId,
    RegionId,
    TenantId,
    WorkloadId,
)
from domain.resources import Quota
from domain.tenant import Tenant
from formats.trace import TraceRow
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.levels.remaining_service import RemainingService
from global_scheduler.levels.time_slice import TimeSlice
from global_scheduler.ordering.gittins import GittinsOrdering
from simulator.baselines.tiresias import PROMOTE_KNOB, THRESHOLDS_GPU_S
from simulator.engine.settings import CostSettings, SimulationSettings
from simulator.policies.policy import Policy
from simulator.policies.registry import policies
from tests.examples import examples
from tests.simulator.engine.checked_run import (
    NO_COSTS,
    UNLIMITED,
    V100,
    CheckedRun,
    checked_run,
    machine,
    one_region,
    region,
    row,
)

NAMES = ("ads", "bio", "car")
LADDER = tuple(
    Tenant(TenantId(name), priority, Quota.of({ANY_GPU_MODEL: UNLIMITED})) for priority, name in enumerate(NAMES)
)
"""Priorities all differ and nobody is beyond quota, so that credit never decides between tenants: its constants have
units of their own (an hour of age, a day of use), and would have to be changed along with the times."""
COSTS = SimulationSettings(
    costs=CostSettings(container_start_s=20.0, checkpoint_save_s=10.0, restore_s=5.0, checkpoint_interval_s=100.0)
)
POLICIES = tuple(policies())
DOUBLED_GPU_S = tuple(2 * threshold for threshold in THRESHOLDS_GPU_S)
SHARES_OF_THE_FLEET = ("drf",)
"""Their shares are of all GPUs that there are, so they are meant to notice any machine."""
ON_THE_FIVE_MINUTES = ("federated_stale",)
"""What they know is from multiples of five minutes, whatever else is shifted or slower."""
MARK = "q-"
"""In front of every name: they stay in the same order."""
Attempt = tuple[str, int, str, float, float, float, int, tuple[tuple[str, int], ...]]


def fleet() -> Fleet:
    return Fleet(
        (
            region("west", [machine("w1", 4), machine("w2", 4)], [machine("w3", 8)]),
            region("east", [machine("e1", 4), machine("e2", 2)]),
        )
    )


def trace(seed: int, count: int = 36, *, model: GpuModel = ANY_GPU_MODEL) -> list[TraceRow]:
    """Whole seconds, so that sums of times are exact."""
    rng = np.random.default_rng(seed)
    arrivals_s = np.cumsum(rng.integers(0, 90, count))
    return [
        replace(
            row(
                f"w{number:03}",
                float(arrivals_s[number]),
                float(rng.integers(1, 1500)),
                int(rng.choice([1, 2, 4, 8])),
                NAMES[int(rng.integers(3))],
            ),
            gpu_model=model,
        )
        for number in range(count)
    ]


def run(
    policy: Policy,
    rows: Sequence[TraceRow],
    machines: Fleet | None = None,
    chosen: SimulationSettings = COSTS,
    tenants: Sequence[Tenant] = LADDER,
) -> CheckedRun:
    # Many long runs: what the engine counts is checked at some of their events, capacities as in every test.
    return checked_run(
        policy, rows, machines or fleet(), tenants if policy.scans else None, chosen, check_every_events=10
    )


def attempts(result: CheckedRun, *, scale: float = 1.0, shift_s: float = 0.0) -> list[Attempt]:
    """Everything about the attempts but how the tables number things, in the order of the dispatches."""
    record = result.record
    table = record.attempts
    said = []
    for at in range(len(table)):
        held = range(int(table.first_share[at]), int(table.first_share[at + 1]))
        times = [float(column[at]) / scale - shift_s for column in (table.dispatched_s, table.started_s, table.ended_s)]
        said.append(
            (
                record.workloads.ids[table.workload[at]],
                int(table.number[at]),
                record.regions[table.region[at]],
                *(-1.0 if np.isnan(time_s) else time_s for time_s in times),
                int(table.end[at]),
                tuple((record.machines.names[record.shares.machine[s]], int(record.shares.gpus[s])) for s in held),
            )
        )
    assert said, "nothing ran"
    return said


def twice_as_slow(policy: Policy) -> Policy:
    """Its own constants of time, doubled too."""
    bounds = EvictionRule(2 * policy.eviction.minimum_run_time_s)
    slower: dict[str, Policy] = {
        "las": replace(policy, levels=AttainedService((6400.0,))),
        "tiresias_las": replace(policy, levels=AttainedService(DOUBLED_GPU_S, PROMOTE_KNOB), eviction=bounds),
        "tiresias_gittins": replace(
            policy,
            levels=AttainedService(DOUBLED_GPU_S, PROMOTE_KNOB),
            ordering=GittinsOrdering(DOUBLED_GPU_S),
            eviction=bounds,
        ),
        "gandiva": replace(policy, levels=TimeSlice(120.0)),
        "srsf": replace(policy, levels=RemainingService(120.0)),
    }
    return slower.get(policy.name, policy)


def _without_hours(policy: Policy) -> Policy:
    """An hour stays an hour."""
    return replace(policy, eviction=replace(policy.eviction, evictions_per_workload_and_hour=None))


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in ON_THE_FIVE_MINUTES])
def test_twice_the_times_twice_the_results(name: str) -> None:
    policy, rows = _without_hours(policies()[name]), trace(1)
    doubled = [replace(each, submit_s=2 * each.submit_s, duration_s=2 * each.duration_s) for each in rows]
    costs = CostSettings(container_start_s=40.0, checkpoint_save_s=20.0, restore_s=10.0, checkpoint_interval_s=200.0)
    slower = SimulationSettings(costs=costs, scan_period_s=120.0, usage_window_s=172_800.0)
    before, after = run(policy, rows), run(twice_as_slow(policy), doubled, chosen=slower)
    assert attempts(after, scale=2.0) == attempts(before)


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in ON_THE_FIVE_MINUTES])
def test_later_by_so_much_later_by_so_much(name: str) -> None:
    policy, rows = policies()[name], trace(2)
    shift_s = 1024.0 * 60
    shifted = [replace(each, submit_s=each.submit_s + shift_s) for each in rows]
    assert attempts(run(policy, shifted), shift_s=shift_s) == attempts(run(policy, rows))


@pytest.mark.parametrize("name", POLICIES)
def test_other_names_change_nothing_but_names(name: str) -> None:
    """In the same order: names are the last word where everything else is equal."""
    policy, rows = policies()[name], trace(3)
    renamed = [
        replace(each, workload_id=WorkloadId(MARK + each.workload_id), tenant=TenantId(MARK + each.tenant))
        for each in rows
    ]
    ladder = [replace(tenant, tenant=TenantId(MARK + tenant.tenant)) for tenant in LADDER]
    plain = run(policy, rows)
    marked = run(policy, renamed, tenants=ladder)
    assert [json.dumps(record).replace(MARK, "") for record in marked.log] == list(map(json.dumps, plain.log))


@pytest.mark.parametrize("name", POLICIES)
def test_the_order_of_the_rows_is_nothing(name: str) -> None:
    policy, rows = policies()[name], trace(4)
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    assert run(policy, [rows[at] for at in order]).log == run(policy, rows).log


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in SHARES_OF_THE_FLEET])
@pytest.mark.parametrize("where", ["before", "after"])
def test_a_region_that_nobody_may_use_changes_nothing(name: str, where: str) -> None:
    """Machines of another model, and of none at all; before all the others by name and by place, or after them."""
    policy, rows = policies()[name], trace(5, model=V100)
    other = region("aaa" if where == "before" else "zzz", [machine("x", 8, GpuModel("K80"))])
    bare = Region(
        RegionId("aab" if where == "before" else "zzy"), (Cluster(ClusterId("bare"), (Rack(RackId("bare"), ()),)),)
    )
    regions = fleet().regions
    larger = Fleet((other, bare, *regions) if where == "before" else (*regions, bare, other))
    assert attempts(run(policy, rows, larger)) == attempts(run(policy, rows))


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "random_region"])
def test_a_trace_in_two_parts_ends_as_each_part_alone(name: str) -> None:
    """Cut where nothing is left to do. The second part begins at a multiple of the scan period, as it does alone."""
    policy = policies()[name]
    first = trace(6, 20)
    gap_s = 1_200_000.0
    second = [
        replace(each, workload_id=WorkloadId(f"x{each.workload_id}"), submit_s=each.submit_s + gap_s)
        for each in trace(7, 20)
    ]
    second = [replace(each, submit_s=each.submit_s - second[0].submit_s + gap_s) for each in second]
    first = [replace(each, submit_s=each.submit_s - first[0].submit_s) for each in first]
    alone = [run(policy, part) for part in (first, second)]
    assert max(alone[0].ends().values()) < gap_s
    assert attempts(run(policy, first + second)) == attempts(alone[0]) + attempts(alone[1])


JOBS = st.lists(st.tuples(st.integers(0, 100), st.integers(1, 60)), min_size=1, max_size=20)


def singles(jobs: Sequence[tuple[int, int]], tenant: str = "t", prefix: str = "j") -> list[TraceRow]:
    return [row(f"{prefix}{n:02}", float(at), float(runs), tenant=tenant) for n, (at, runs) in enumerate(jobs)]


@settings(max_examples=examples(30))
@given(jobs=JOBS, machines=st.integers(1, 4))
def test_never_a_later_start_with_one_machine_more(jobs: list[tuple[int, int]], machines: int) -> None:
    """For workloads of one GPU, first in first out, that is a theorem (Kiefer and Wolfowitz: the ordered vector of the
    times at which the servers come free is less in every place). With gangs it is not: list scheduling has anomalies."""
    fifo = policies()["fifo"]
    fewer = checked_run(fifo, singles(jobs), one_region(machines, 1)).starts()
    more = checked_run(fifo, singles(jobs), one_region(machines + 1, 1)).starts()
    assert [name for name in fewer if more[name] > fewer[name]] == []


@settings(max_examples=examples(30))
@given(jobs=JOBS, machines=st.integers(1, 3), shorter=st.integers(0, 19))
def test_never_a_later_start_when_one_works_for_less(jobs: list[tuple[int, int]], machines: int, shorter: int) -> None:
    fifo = policies()["fifo"]
    less = [(at, 1) if n == shorter % len(jobs) else (at, runs) for n, (at, runs) in enumerate(jobs)]
    before = checked_run(fifo, singles(jobs), one_region(machines, 1)).starts()
    after = checked_run(fifo, singles(less), one_region(machines, 1)).starts()
    assert [name for name in before if after[name] > before[name]] == []


@settings(max_examples=examples(30))
@given(high=JOBS, low=JOBS)
def test_never_a_worse_priority_that_is_felt(high: list[tuple[int, int]], low: list[tuple[int, int]]) -> None:
    """Without costs, on GPUs that are all alike, whoever is at priority 0 has the fleet to himself."""
    at_once = NO_COSTS.model_copy(update={"scan_period_s": 0.0})
    top = singles(high, "ads", "h")
    mast = policies()["mast"]
    alone = checked_run(mast, top, one_region(1, 2), LADDER, at_once).starts()
    together = checked_run(mast, [*top, *singles(low, "car", "l")], one_region(1, 2), LADDER, at_once)
    assert {name: together.starts()[name] for name in alone} == alone


@pytest.mark.parametrize("seed", [8, 9])
def test_one_tenant_without_limits_is_first_in_first_out(seed: int) -> None:
    """MAST with one tenant alone: one priority, and credit that only grows with age."""
    rows = [replace(each, tenant=TenantId("ads")) for each in trace(seed)]
    at_once = COSTS.model_copy(update={"scan_period_s": 0.0})
    assert attempts(run(policies()["mast"], rows, chosen=at_once)) == attempts(
        run(policies()["fifo"], rows, chosen=at_once)
    )


@pytest.mark.parametrize("seed", [10, 11])
def test_equal_sizes_leave_nothing_to_choose(seed: int) -> None:
    """One GPU each: whoever passes others over, backfills, or takes the smallest first finds the same first in line."""
    rows = [replace(each, gpus=1) for each in trace(seed)]
    others = ("yarn_cs", "best_effort", "sf", "easy_backfill")
    fifo = attempts(run(policies()["fifo"], rows))
    assert [name for name in others if attempts(run(policies()[name], rows)) != fifo] == []
