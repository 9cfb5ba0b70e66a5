"""Comparisons whose outcome is known, and the statistics against their definitions."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from simulator.results.bootstrap import difference_of, resampled_means
from simulator.results.comparison import Comparison, compare_runs
from simulator.results.figures import figures_of
from simulator.results.run_record import RunRecord
from simulator.results.signed_rank import signed_rank_p
from tests.house.determinism import assert_same_output
from tests.simulator.results.small_runs import SmallRequest, asked_at_random, run_of


def compared(*runs: RunRecord, seed: int = 1) -> Comparison:
    return compare_runs(runs, [figures_of(run) for run in runs], np.random.default_rng(seed))


def asked(seed: int = 1, count: int = 500) -> list[SmallRequest]:
    return asked_at_random(np.random.default_rng(seed), count, load=1.1, gpus=32, greatest=8)


def test_two_jobs_that_change_places() -> None:
    """A long one (100 s) and a short one (10 s) at once on one machine: the short one wins 100 s, the other loses 10."""

    def both() -> list[SmallRequest]:
        return [SmallRequest(0.0, 100.0, 8), SmallRequest(0.0, 10.0, 8), SmallRequest(500.0, 50.0, 8)]

    # The first to come is taken first under fifo; sjf sees both only if the machine is busy when they come.
    first = SmallRequest(-1.0, 5.0, 8)
    fifo = run_of([replace(first, attempts=[]), *both()], policy="fifo", machines=1)
    sjf = run_of([replace(first, attempts=[]), *both()], policy="sjf", machines=1)
    pair = compared(fifo, sjf).pairs[0]
    assert (pair.policy, pair.baseline, pair.seeds, pair.workloads) == ("sjf", "fifo", (0,), 4)
    assert (pair.won, pair.lost, pair.same) == (1, 1, 2)
    assert (pair.gained_s, pair.forgone_s) == (100.0, 10.0)
    assert pair.sign_test_share == 0.5
    assert [(job.workload, job.gpus, job.baseline_s, job.policy_s) for job in pair.top_winners] == [
        ("w000002", 8, 114.0, 14.0)
    ]
    assert [(job.workload, job.policy_s - job.baseline_s) for job in pair.top_losers] == [("w000001", 10.0)]
    assert pair.jct_s is not None
    assert pair.queueing_s is not None
    assert pair.jct_s.difference_s.value == pair.queueing_s.difference_s.value == -90 / 4
    assert pair.jct_s.ratio.value == pytest.approx((5 + 114 + 14 + 50) / (5 + 104 + 114 + 50))


def test_a_policy_that_is_the_same_is_no_better() -> None:
    fifo = run_of(asked())
    pair = compared(fifo, replace(run_of(asked()), policy="also fifo")).pairs[0]
    assert (pair.won, pair.lost, pair.same) == (0, 0, 500)
    assert pair.jct_s is not None
    assert (pair.jct_s.difference_s.low, pair.jct_s.difference_s.high) == (0.0, 0.0)
    assert (pair.jct_s.ratio.low, pair.jct_s.ratio.high) == (1.0, 1.0)
    assert np.isnan(pair.jct_s.signed_rank_p)
    assert np.isnan(pair.sign_test_share)


def test_a_better_policy_is_seen_to_be() -> None:
    comparison = compared(run_of(asked()), run_of(asked(), policy="sjf"), run_of(asked(), policy="urgent"))
    assert comparison.policies == ("fifo", "sjf", "urgent")
    sjf = comparison.pairs[0]
    assert sjf.jct_s is not None
    assert sjf.jct_s.ratio.low < sjf.jct_s.ratio.value < sjf.jct_s.ratio.high < 1.0
    assert sjf.jct_s.difference_s.high < 0.0
    assert sjf.jct_s.signed_rank_p < 0.001
    assert sjf.won + sjf.lost + sjf.same == sjf.workloads == 500
    assert [pair.baseline for pair in comparison.pairs] == ["fifo", "fifo"]


def test_over_seeds_a_workload_counts_once_with_its_average() -> None:
    runs = [run_of(asked(seed, 200), policy=policy, seed=seed) for policy in ("fifo", "sjf") for seed in (1, 2, 3)]
    comparison = compared(*runs)
    pair = comparison.pairs[0]
    assert (pair.seeds, pair.workloads) == ((1, 2, 3), 200)
    means = [figures_of(run).jct_s.mean for run in runs]
    assert pair.jct_s is not None
    assert pair.jct_s.baseline_mean_s == pytest.approx(np.mean(means[:3]))
    assert pair.jct_s.policy_mean_s == pytest.approx(np.mean(means[3:]))
    aggregate = comparison.aggregates["sjf"]["jct_mean_s"]
    assert aggregate.seeds == 3
    assert aggregate.mean == pytest.approx(np.mean(means[3:]))
    assert aggregate.standard_deviation == pytest.approx(np.std(means[3:], ddof=1))
    assert (aggregate.least, aggregate.greatest) == (min(means[3:]), max(means[3:]))


def test_workloads_that_completed_under_one_only_are_counted_apart() -> None:
    whole = asked()
    cut = run_of(asked(), policy="sjf", until_s=whole[400].submitted_s)
    pair = compared(run_of(whole), cut).pairs[0]
    assert pair.workloads == figures_of(cut).completed
    assert pair.completed_by_baseline_only == 500 - pair.workloads
    assert pair.completed_by_policy_only == 0


def test_nothing_in_common_is_reported_as_nothing() -> None:
    fifo = run_of(asked(count=5))
    other = run_of(asked(count=5), policy="sjf")
    renamed = replace(other, workloads=replace(other.workloads, ids=tuple(f"x{i}" for i in range(5))))
    pair = compared(fifo, renamed).pairs[0]
    assert (pair.workloads, pair.jct_s, pair.top_winners) == (0, None, ())
    assert (pair.completed_by_policy_only, pair.completed_by_baseline_only) == (5, 5)


@pytest.mark.parametrize(
    ("policies", "seeds", "sentence"),
    [
        (("fifo",), (1,), "needs runs of at least two policies; got fifo"),
        (("fifo", "fifo"), (1, 2), "needs runs of at least two policies; got fifo"),
        (("fifo", "sjf", "sjf"), (1, 1, 1), "'sjf' has two runs of seed 1"),
        (("fifo", "sjf"), (1, 2), "'sjf' and 'fifo' have no seed in common"),
    ],
    ids=["one", "one-policy", "twice", "apart"],
)
def test_what_cannot_be_compared_is_refused(policies: tuple[str, ...], seeds: tuple[int, ...], sentence: str) -> None:
    runs = [run_of(asked(count=5), policy=policy, seed=seed) for policy, seed in zip(policies, seeds, strict=True)]
    with pytest.raises(ValueError, match=sentence):
        compared(*runs)


def test_resampled_means_vary_as_the_theory_says(generator: np.random.Generator) -> None:
    values = np.stack([generator.exponential(10.0, 400), generator.exponential(20.0, 400)], axis=1)
    means = resampled_means(values, generator)
    assert means.shape == (2000, 2)
    assert means.mean(axis=0) == pytest.approx(values.mean(axis=0), rel=0.01)
    assert means.std(axis=0) == pytest.approx(values.std(axis=0) / 20, rel=0.1)


def test_intervals_hold_the_truth_about_as_often_as_they_say(generator: np.random.Generator) -> None:
    held = 0
    for _ in range(200):
        pairs = np.stack([generator.normal(12.0, 3.0, 40), generator.normal(10.0, 3.0, 40)], axis=1)
        means = resampled_means(pairs, generator, 400)
        ours, theirs = pairs.mean(axis=0).tolist()
        estimate = difference_of(ours, theirs, means[:, 0], means[:, 1])
        held += estimate.low <= 2.0 <= estimate.high
    assert 175 <= held <= 199


def test_the_signed_rank_test_is_near_the_exact_one(generator: np.random.Generator) -> None:
    """All 4,096 ways to put signs before 12 ranks."""
    for shift in (0.0, 0.5, 1.0, 2.0):
        differences = generator.normal(shift, 1.0, 12)
        ranks = np.argsort(np.argsort(np.abs(differences))) + 1
        seen = abs(ranks[differences > 0].sum() - 39)
        signs = np.array(list(product((0, 1), repeat=12)))
        exact = float((np.abs(signs @ ranks - 39) >= seen).mean())
        assert signed_rank_p(differences) == pytest.approx(exact, abs=0.02)
    assert signed_rank_p(np.concatenate((np.ones(30), -np.ones(30)))) > 0.9
    assert np.isnan(signed_rank_p(np.ones(9)))


def test_the_same_runs_and_seed_give_the_same_bytes() -> None:
    output = assert_same_output(
        """
import json
import numpy as np
from tests.simulator.results.test_comparison import asked, run_of, compared
from simulator.results.figures import figures_of
runs = [run_of(asked(count=150), policy=policy) for policy in ("fifo", "urgent")]
print(json.dumps([figures_of(run).as_json() for run in runs], allow_nan=False))
print(json.dumps(compared(*runs).as_json(), allow_nan=False))
"""
    )
    assert '"signed_rank_p"' in output
