"""Shortest remaining time first on one GPU: optimal for the mean completion time (Schrage 1968), and exactly known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.policies.registry import policies
from tests.examples import examples
from tests.simulator.engine.checked_run import checked_run, one_region, row

Jobs = list[tuple[int, int]]
JOBS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=14)


def completions_s(jobs: Jobs) -> list[int]:
    """The ten-line oracle: second by second, whoever has the least left works. Whole seconds, so it is exact."""
    left = [runs for _, runs in jobs]
    done = [0] * len(jobs)
    now = 0
    while any(left):
        ready = [n for n, (at, _) in enumerate(jobs) if at <= now and left[n]]
        if ready:
            chosen = min(ready, key=lambda n: (left[n], n))
            left[chosen] -= 1
            done[chosen] = now + 1
        now += 1
    return done


def mean_jct_s(policy: str, jobs: Jobs) -> float:
    rows = [row(f"j{n:02}", float(at), float(runs)) for n, (at, runs) in enumerate(jobs)]
    return checked_run(policies()[policy], rows, one_region(1, 1)).mean_jct_s()


def optimum_s(jobs: Jobs) -> float:
    return float(np.mean([done - at for done, (at, _) in zip(completions_s(jobs), jobs, strict=True)]))


@given(jobs=JOBS)
def test_never_another_mean_than_the_oracles(jobs: Jobs) -> None:
    assert mean_jct_s("srtf", jobs) == pytest.approx(optimum_s(jobs))


@pytest.mark.parametrize("policy", [name for name in policies() if name != "srtf"])
@settings(max_examples=examples(15))
@given(jobs=JOBS)
def test_never_a_policy_that_is_better(policy: str, jobs: Jobs) -> None:
    assert mean_jct_s(policy, jobs) >= optimum_s(jobs) - 1e-6


def test_it_is_better_than_the_others_where_sizes_differ() -> None:
    jobs = [(0, 400), (10, 20), (20, 5), (30, 200), (40, 1)]
    others = {name: mean_jct_s(name, jobs) for name in ("fifo", "las", "mast", "sjf", "gandiva")}
    assert min(others.values()) > mean_jct_s("srtf", jobs)
