"""Runs of several policies over the same trace, compared job by job and over seeds (docs/results-format.md).

Every policy is compared with the first one, its baseline. A workload counts in a pair when it completed under both
policies, in the same seed; over several seeds each workload counts once, with its average, so that what is resampled
are workloads, which do not depend on each other's seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from domain.events import JsonValue
from simulator.results.bootstrap import RESAMPLES, Estimate, difference_of, ratio_of, resampled_means
from simulator.results.distribution import number_or_null
from simulator.results.figures import RunFigures, rows_of
from simulator.results.run_record import Reals, RunRecord
from simulator.results.signed_rank import signed_rank_p

SAME_S = 1.0
"""A workload whose completion differs by less neither wins nor loses."""
SHOWN_JOBS = 10

_AGGREGATED = (
    "jct_mean_s",
    "jct_p95_s",
    "queueing_mean_s",
    "queueing_p95_s",
    "makespan_s",
    "gpu_allocation_rate",
    "gpu_allocation_rate_when_overloaded",
    "gpu_utilisation",
    "preemptions",
    "preempted_gpu_s",
    "lost_work_gpu_s",
    "completed",
    "unfinished",
)


@dataclass(frozen=True, slots=True)
class JobDifference:
    """A workload under both policies; seconds from submission to completion, averaged over seeds."""

    workload: str
    tenant: str
    gpus: int
    baseline_s: float
    policy_s: float

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "workload": self.workload,
            "tenant": self.tenant,
            "gpus": self.gpus,
            "baseline_s": self.baseline_s,
            "policy_s": self.policy_s,
            "difference_s": self.policy_s - self.baseline_s,
        }


@dataclass(frozen=True, slots=True)
class Contrast:
    """A mean under one policy against that under the baseline, over the same workloads."""

    baseline_mean_s: float
    policy_mean_s: float
    difference_s: Estimate
    """Policy − baseline: negative is faster."""
    ratio: Estimate
    """Policy ÷ baseline: less than 1 is faster."""
    signed_rank_p: float
    """Wilcoxon's signed-rank test over the workloads."""

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "baseline_mean_s": self.baseline_mean_s,
            "policy_mean_s": self.policy_mean_s,
            "difference_s": self.difference_s.as_json(),
            "ratio": self.ratio.as_json(),
            "signed_rank_p": number_or_null(self.signed_rank_p),
        }


@dataclass(frozen=True, slots=True)
class PairedComparison:
    """One policy against the baseline."""

    policy: str
    baseline: str
    seeds: tuple[int, ...]
    workloads: int
    """That completed under both."""
    completed_by_policy_only: int
    completed_by_baseline_only: int
    won: int
    """Workloads that completed sooner under the policy, by at least a second."""
    lost: int
    same: int
    gained_s: float
    """By those that won, together."""
    forgone_s: float
    """By those that lost, together."""
    jct_s: Contrast | None
    """None when no workload completed under both."""
    queueing_s: Contrast | None
    top_winners: tuple[JobDifference, ...]
    top_losers: tuple[JobDifference, ...]

    @property
    def sign_test_share(self) -> float:
        """Of the workloads that won or lost, the share that won; not a number when there are none."""
        return self.won / (self.won + self.lost) if self.won + self.lost else float("nan")

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "policy": self.policy,
            "baseline": self.baseline,
            "seeds": list[JsonValue](self.seeds),
            "workloads": self.workloads,
            "completed_by_policy_only": self.completed_by_policy_only,
            "completed_by_baseline_only": self.completed_by_baseline_only,
            "won": self.won,
            "lost": self.lost,
            "same": self.same,
            "sign_test_share": number_or_null(self.sign_test_share),
            "gained_s": self.gained_s,
            "forgone_s": self.forgone_s,
            "jct_s": None if self.jct_s is None else self.jct_s.as_json(),
            "queueing_s": None if self.queueing_s is None else self.queueing_s.as_json(),
            "top_winners": [job.as_json() for job in self.top_winners],
            "top_losers": [job.as_json() for job in self.top_losers],
        }


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A figure over the seeds of a policy. The deviation is the sample's; not a number for one seed."""

    seeds: int
    mean: float
    standard_deviation: float
    least: float
    greatest: float

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "seeds": self.seeds,
            "mean": number_or_null(self.mean),
            "standard_deviation": number_or_null(self.standard_deviation),
            "least": number_or_null(self.least),
            "greatest": number_or_null(self.greatest),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several policies over the same trace."""

    trace: str
    policies: tuple[str, ...]
    """The first one is the baseline."""
    aggregates: dict[str, dict[str, Aggregate]]
    """By policy, then by figure."""
    pairs: tuple[PairedComparison, ...]

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "trace": self.trace,
            "policies": list[JsonValue](self.policies),
            "baseline": self.policies[0],
            "aggregates": {
                policy: {name: aggregate.as_json() for name, aggregate in figures.items()}
                for policy, figures in self.aggregates.items()
            },
            "pairs": [pair.as_json() for pair in self.pairs],
        }


def compare_runs(
    runs: Sequence[RunRecord],
    figures: Sequence[RunFigures],
    generator: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Compares the runs of each policy with those of the first run's policy.

    `figures` are those of the runs, one by one. Raises ValueError when there are fewer than two policies, when a
    policy has two runs of the same seed, or when two policies have no seed in common.
    """
    of_policy: dict[str, dict[int, RunRecord]] = {}
    for run in runs:
        seeds = of_policy.setdefault(run.policy, {})
        if run.seed in seeds:
            raise ValueError(
                f"policy {run.policy!r} has two runs of seed {run.seed}; give each run its own policy name or seed"
            )
        seeds[run.seed] = run
    policies = tuple(of_policy)
    if len(policies) < 2:
        raise ValueError(f"a comparison needs runs of at least two policies; got {', '.join(policies) or 'none'}")
    return Comparison(
        trace=runs[0].trace,
        policies=policies,
        aggregates={
            policy: _aggregates([figure for figure in figures if figure.policy == policy]) for policy in policies
        },
        pairs=tuple(
            _pair(policy, of_policy[policy], policies[0], of_policy[policies[0]], generator, resamples)
            for policy in policies[1:]
        ),
    )


def _pair(
    policy: str,
    ours: dict[int, RunRecord],
    baseline: str,
    theirs: dict[int, RunRecord],
    generator: np.random.Generator,
    resamples: int,
) -> PairedComparison:
    seeds = tuple(sorted(ours.keys() & theirs.keys()))
    if not seeds:
        raise ValueError(f"policies {policy!r} and {baseline!r} have no seed in common, so no runs to compare")
    common = [_common_workloads(ours[seed], theirs[seed]) for seed in seeds]
    names = np.concatenate([workloads.names for workloads in common])
    ids, row_of = np.unique(names, return_inverse=True)
    times = np.bincount(row_of, minlength=len(ids))
    values = np.concatenate([workloads.values for workloads in common])
    averages = (
        np.stack(
            [np.bincount(row_of, weights=values[:, column], minlength=len(ids)) / times for column in range(4)], axis=1
        )
        if len(ids)
        else np.zeros((0, 4))
    )
    difference_s = averages[:, 0] - averages[:, 1]
    won, lost = difference_s <= -SAME_S, difference_s >= SAME_S
    jct_s, queueing_s = _contrasts(averages, generator, resamples)
    # Largest difference first, then by id (ids are sorted).
    order = np.argsort(difference_s, kind="stable")
    about = {name: (tenant, gpus) for workloads in common for name, tenant, gpus in workloads.about()}

    def jobs(rows: NDArray[np.int64]) -> tuple[JobDifference, ...]:
        return tuple(
            JobDifference(str(ids[row]), *about[str(ids[row])], float(averages[row, 1]), float(averages[row, 0]))
            for row in rows
        )

    return PairedComparison(
        policy=policy,
        baseline=baseline,
        seeds=seeds,
        workloads=len(ids),
        completed_by_policy_only=sum(workloads.ours_only for workloads in common),
        completed_by_baseline_only=sum(workloads.theirs_only for workloads in common),
        won=int(won.sum()),
        lost=int(lost.sum()),
        same=int((~won & ~lost).sum()),
        gained_s=float(np.abs(difference_s[won]).sum()),
        forgone_s=float(difference_s[lost].sum()),
        jct_s=jct_s,
        queueing_s=queueing_s,
        top_winners=jobs(order[won[order]][:SHOWN_JOBS]),
        top_losers=jobs(np.argsort(-difference_s, kind="stable")[: int(lost.sum())][:SHOWN_JOBS]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _CommonWorkloads:
    """Those that completed in both of two runs."""

    run: RunRecord
    rows: NDArray[np.int64]
    """In that run."""
    names: NDArray[np.str_]
    values: Reals
    """Per workload: JCT of ours and theirs, queueing of ours and theirs."""
    ours_only: int
    theirs_only: int

    def about(self) -> list[tuple[str, str, int]]:
        """Name, tenant and GPUs of each."""
        workloads = self.run.workloads
        return [
            (workloads.ids[row], self.run.tenants[workloads.tenant[row]], int(workloads.gpus[row])) for row in self.rows
        ]


def _common_workloads(ours: RunRecord, theirs: RunRecord) -> _CommonWorkloads:
    our_rows, their_rows = rows_of(ours), rows_of(theirs)
    our_done = np.flatnonzero(~np.isnan(our_rows.jct_s))
    their_done = np.flatnonzero(~np.isnan(their_rows.jct_s))
    our_names = np.array(ours.workloads.ids, dtype=np.str_)[our_done]
    their_names = np.array(theirs.workloads.ids, dtype=np.str_)[their_done]
    names, in_ours, in_theirs = np.intersect1d(our_names, their_names, assume_unique=True, return_indices=True)
    mine, yours = our_done[in_ours], their_done[in_theirs]
    values = np.stack(
        [
            our_rows.jct_s[mine],
            their_rows.jct_s[yours],
            our_rows.queueing_s[mine],
            their_rows.queueing_s[yours],
        ],
        axis=1,
    )
    return _CommonWorkloads(ours, mine, names, values, len(our_done) - len(names), len(their_done) - len(names))


def _contrasts(
    averages: Reals, generator: np.random.Generator, resamples: int
) -> tuple[Contrast | None, Contrast | None]:
    """Of JCT and of queueing, from the same resamples."""
    if not len(averages):
        return None, None
    means = averages.mean(axis=0)
    resampled = resampled_means(averages, generator, resamples)
    contrasts = []
    for ours, theirs in ((0, 1), (2, 3)):
        arguments = (float(means[ours]), float(means[theirs]), resampled[:, ours], resampled[:, theirs])
        contrasts.append(
            Contrast(
                baseline_mean_s=float(means[theirs]),
                policy_mean_s=float(means[ours]),
                difference_s=difference_of(*arguments),
                ratio=ratio_of(*arguments),
                signed_rank_p=signed_rank_p(averages[:, ours] - averages[:, theirs]),
            )
        )
    return contrasts[0], contrasts[1]


def _aggregates(figures: Sequence[RunFigures]) -> dict[str, Aggregate]:
    flat = [_flat(figure) for figure in figures]
    return {name: _aggregate([values[name] for values in flat]) for name in _AGGREGATED}


def _flat(figures: RunFigures) -> dict[str, float | None]:
    return {
        "jct_mean_s": figures.jct_s.mean,
        "jct_p95_s": figures.jct_s.p95,
        "queueing_mean_s": figures.queueing_s.mean,
        "queueing_p95_s": figures.queueing_s.p95,
        "makespan_s": figures.makespan_s,
        "gpu_allocation_rate": figures.gpu_allocation_rate,
        "gpu_allocation_rate_when_overloaded": figures.gpu_allocation_rate_when_overloaded,
        "gpu_utilisation": figures.gpu_utilisation,
        "preemptions": figures.preemptions,
        "preempted_gpu_s": figures.preempted_gpu_s,
        "lost_work_gpu_s": figures.lost_work_gpu_s,
        "completed": figures.completed,
        "unfinished": figures.unfinished,
    }


def _aggregate(values: Sequence[float | None]) -> Aggregate:
    """Over the seeds that have the figure."""
    known = np.array([value for value in values if value is not None and not np.isnan(value)], dtype=np.float64)
    if not len(known):
        nothing = float("nan")
        return Aggregate(0, nothing, nothing, nothing, nothing)
    deviation = float(known.std(ddof=1)) if len(known) > 1 else float("nan")
    return Aggregate(len(known), float(known.mean()), deviation, float(known.min()), float(known.max()))
