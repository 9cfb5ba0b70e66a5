"""Whose turn it is, where tenants are to get equal shares."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.fleet import Fleet
from formats.trace import TraceRow
from tests.examples import examples
from tests.simulator.baselines.runs import BaselineRun, one_machine, region_of, row, run


def _running_at(done: BaselineRun, at_s: float) -> Counter[str]:
    """How many workloads of each tenant first ran at that time; tenants are named by the first letter."""
    return Counter(name[0] for name, start_s in done.first_starts.items() if start_s == at_s)


def _crowd(tenant: str, count: int, submit_s: float, **asks: float) -> list[TraceRow]:
    gpus, cpus = int(asks.get("gpus", 1)), asks.get("cpus")
    return [row(f"{tenant}{n}", submit_s, 100, gpus, tenant=tenant, cpus=cpus, tasks=1) for n in range(count)]


def test_fair_share_halves_what_fifo_gives_to_the_first() -> None:
    rows = [row("x", 0, 10, 4, tenant="x"), *_crowd("a", 8, 1), *_crowd("b", 8, 2)]
    assert _running_at(run("fair_share", one_machine(4), rows), 10.0) == {"a": 2, "b": 2}
    assert _running_at(run("fifo", one_machine(4), rows), 10.0) == {"a": 4}


def test_fair_share_counts_weights() -> None:
    rows = [row("x", 0, 10, 4, tenant="x"), *_crowd("a", 8, 1), *_crowd("b", 8, 2)]
    done = run("fair_share", one_machine(4), rows, weights={"a": 1.0, "b": 3.0})
    assert _running_at(done, 10.0) == {"a": 1, "b": 3}


def test_fair_share_lets_a_tenant_have_what_the_others_cannot_use() -> None:
    rows = [row("x", 0, 10, 4, tenant="x"), row("a0", 1, 100, 3, tenant="a"), *_crowd("b", 8, 2)]
    # a0 takes 3 of 4; b, poorer from then on, gets the last.
    assert _running_at(run("fair_share", one_machine(4), rows), 10.0) == {"a": 1, "b": 1}


def test_drf_gives_the_paper_its_example() -> None:
    """DRF §4.1: 9 CPUs and 18 of the other; tasks of <1 CPU, 4> and <3 CPUs, 1>: three of A's and two of B's run."""
    fleet = Fleet((region_of("east", 18, cpus_per_gpu=0.5),))
    rows = [*_crowd("a", 9, 0, gpus=4, cpus=1.0), *_crowd("b", 9, 0, gpus=1, cpus=3.0)]
    assert _running_at(run("drf", fleet, rows), 0.0) == {"a": 3, "b": 2}


def test_drf_counts_proportional_shares_of_cpus() -> None:
    # Every workload of `a` takes 1 of 8 GPUs and with it 4 of 32 CPUs; every one of `b` 1 GPU and 12 CPUs.
    rows = [*_crowd("a", 9, 0), *_crowd("b", 9, 0, gpus=1, cpus=12.0)]
    assert _running_at(run("drf", one_machine(8), rows), 0.0) == {"a": 5, "b": 1}
    assert _running_at(run("fair_share", one_machine(8), rows), 0.0) == {"a": 2, "b": 2}


@pytest.mark.parametrize("policy", ["fair_share", "drf"])
@given(
    arrivals=st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 30), st.sampled_from("abc")), min_size=4, max_size=14
    )
)
@settings(max_examples=examples(25))
def test_never_goes_a_richer_tenant_first(policy: str, arrivals: list[tuple[int, int, str]]) -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 4.0}
    rows = [
        row(f"{tenant}{n}", submit, length, 1, tenant=tenant)
        for n, (submit, length, tenant) in enumerate(sorted(arrivals))
    ]
    done = run(policy, one_machine(3), rows, weights=weights)
    held: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    starts = 0
    for event in done.events:
        tenant = str(event.get("tenant"))
        if event["event"] == "submitted":
            waiting[tenant] += 1
        elif event["event"] == "dispatched":
            poorest = min(held[other] / weights[other] for other in waiting if waiting[other])
            assert held[tenant] / weights[tenant] == poorest
            waiting[tenant] -= 1
            held[tenant] += 1
            starts += 1
        elif event["event"] == "completed":
            held[tenant] -= 1
    assert starts == len(rows)
