"""Policies against the first one: how much faster, how sure that is, and whose workloads won and lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite

from domain.events import JsonValue
from simulator.report.panel import FigureTable, Panel, Picture, colour, numbers, texts
from simulator.report.wording import NOTHING, count_of, duration, gpu_hours, number, percent
from simulator.results.comparison import Aggregate, Comparison, Contrast, JobDifference, PairedComparison

_RATES = frozenset({"gpu_allocation_rate", "gpu_allocation_rate_when_overloaded", "gpu_utilisation"})


def comparison_panels(comparison: Comparison) -> tuple[Panel, ...]:
    """How much, whose, and over seeds."""
    seeds = max(aggregates["completed"].seeds for aggregates in comparison.aggregates.values())
    panels = (_ratio_panel(comparison), _winners_panel(comparison))
    return (*panels, _seeds_panel(comparison, seeds)) if seeds > 1 else panels


def _ratio_panel(comparison: Comparison) -> Panel:
    baseline = comparison.policies[0]
    traces: list[Mapping[str, JsonValue]] = []
    rows: list[tuple[str, ...]] = []
    farthest = 1.1
    contrasts = (
        ("completion", [(pair, pair.jct_s) for pair in comparison.pairs]),
        ("queueing", [(pair, pair.queueing_s) for pair in comparison.pairs]),
    )
    for series, (what, pairs) in enumerate(contrasts):
        known = [(pair, contrast) for pair, contrast in pairs if contrast is not None]
        farthest = max([farthest, *(1.05 * c.ratio.high for _, c in known if isfinite(c.ratio.high))])
        traces.append(_ratios(what, series, baseline, known))
        rows += [_contrast_row(pair, what, contrast) for pair, contrast in known]
    layout: dict[str, JsonValue] = {
        "xaxis": {"title": {"text": f"mean, × that under {baseline}"}, "range": [0, farthest]},
        "yaxis": {"type": "category", "range": [len(comparison.pairs) - 0.4, -0.6], "showgrid": False},
        "scattermode": "group",
        "shapes": [
            {
                "type": "line",
                "yref": "paper",
                "x0": 1,
                "x1": 1,
                "y0": 0,
                "y1": 1,
                "line": {"color": "@muted", "dash": "dash", "width": 1},
            }
        ],
        "height": 190 + 44 * len(comparison.pairs),
        "hovermode": "closest",
    }
    explanation = (
        f"Means over the workloads that completed under both, divided by those under {baseline}: to the left of the "
        "line is faster. Bars are 95 % confidence intervals of the paired bootstrap over workloads."
    )
    head = (
        "policy", "mean of", f"under {baseline}", "under the policy", "difference (95 %)", "ratio (95 %)",
        "signed-rank p",
    )  # fmt: skip
    return Panel(
        "comparison",
        f"Against {baseline}",
        explanation,
        (Picture("", tuple(traces), layout),),
        (FigureTable(head, tuple(rows)),),
    )


def _ratios(
    what: str, series: int, baseline: str, contrasts: Sequence[tuple[PairedComparison, Contrast]]
) -> dict[str, JsonValue]:
    ratios = [contrast.ratio for _, contrast in contrasts]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"mean {what} time",
        "x": numbers([ratio.value for ratio in ratios]),
        "y": texts([pair.policy for pair, _ in contrasts]),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": numbers([ratio.high - ratio.value for ratio in ratios]),
            "arrayminus": numbers([ratio.value - ratio.low for ratio in ratios]),
            "thickness": 2,
            "width": 6,
            "color": colour(series),
        },
        "marker": {"color": colour(series), "size": 10, "symbol": "diamond" if series else "circle"},
        "hovertemplate": f"%{{x:.3f}} × {baseline}<extra>%{{fullData.name}}</extra>",
    }


def _contrast_row(pair: PairedComparison, what: str, contrast: Contrast) -> tuple[str, ...]:
    difference, ratio = contrast.difference_s, contrast.ratio
    return (
        pair.policy,
        what,
        duration(contrast.baseline_mean_s),
        duration(contrast.policy_mean_s),
        f"{duration(difference.value)} ({duration(difference.low)} to {duration(difference.high)})",
        f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})",
        _probability(contrast.signed_rank_p),
    )


def _winners_panel(comparison: Comparison) -> Panel:
    baseline = comparison.policies[0]
    pairs = comparison.pairs
    totals = [max(pair.workloads, 1) for pair in pairs]
    names = texts([pair.policy for pair in pairs])
    shares: Sequence[tuple[str, list[int], str]] = (
        ("won", [pair.won for pair in pairs], "@good"),
        ("same", [pair.same for pair in pairs], "@muted"),
        ("lost", [pair.lost for pair in pairs], "@bad"),
    )
    traces: tuple[dict[str, JsonValue], ...] = tuple(
        {
            "type": "bar",
            "orientation": "h",
            "name": what,
            "y": names,
            "x": numbers([100 * count / total for count, total in zip(counts, totals, strict=True)]),
            "text": texts([f"{100 * count / total:.0f} %" for count, total in zip(counts, totals, strict=True)]),
            "textposition": "inside",
            "insidetextanchor": "middle",
            "insidetextfont": {"color": "@surface"},
            "marker": {"color": tint, "opacity": 0.85},
            "customdata": texts([number(count) for count in counts]),
            "hovertemplate": "%{customdata} workloads, %{x:.1f} %<extra>%{fullData.name}</extra>",
        }
        for what, counts, tint in shares
    )
    layout: dict[str, JsonValue] = {
        "barmode": "stack",
        "xaxis": {"title": {"text": "% of workloads"}, "range": [0, 100]},
        "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
        "height": 190 + 44 * len(pairs),
        "hovermode": "closest",
    }
    explanation = f"Workloads that completed at least a second sooner (won) or later (lost) than under {baseline}."
    return Panel(
        "winners",
        "Workloads won and lost",
        explanation,
        (Picture("", traces, layout),),
        (_counts_table(pairs), *(table for pair in pairs for table in _job_tables(pair) if table.rows)),
    )


def _counts_table(pairs: Sequence[PairedComparison]) -> FigureTable:
    head = (
        "policy", "workloads in both", "won", "lost", "same", "won of those that differ", "gained", "forgone",
        "completed only here", "completed only there",
    )  # fmt: skip
    rows = tuple(
        (
            pair.policy,
            number(pair.workloads),
            number(pair.won),
            number(pair.lost),
            number(pair.same),
            percent(pair.sign_test_share),
            duration(pair.gained_s),
            duration(pair.forgone_s),
            number(pair.completed_by_policy_only),
            number(pair.completed_by_baseline_only),
        )
        for pair in pairs
    )
    return FigureTable(head, rows)


def _job_tables(pair: PairedComparison) -> tuple[FigureTable, FigureTable]:
    return (
        _job_table(f"{pair.policy}: those that won most", pair, pair.top_winners),
        _job_table(f"{pair.policy}: those that lost most", pair, pair.top_losers),
    )


def _job_table(caption: str, pair: PairedComparison, jobs: Sequence[JobDifference]) -> FigureTable:
    rows = tuple(
        (
            job.workload,
            job.tenant,
            number(job.gpus),
            duration(job.baseline_s),
            duration(job.policy_s),
            duration(job.policy_s - job.baseline_s),
        )
        for job in jobs
    )
    return FigureTable(
        ("workload", "tenant", "GPUs", f"under {pair.baseline}", f"under {pair.policy}", "difference"), rows, caption
    )


def _seeds_panel(comparison: Comparison, seeds: int) -> Panel:
    policies = comparison.policies
    figures = {policy: comparison.aggregates[policy] for policy in policies}
    names = list(figures[policies[0]])
    rows = tuple((_words(name), *(_aggregate(name, figures[policy][name]) for policy in policies)) for name in names)
    explanation = f"Means over {count_of(seeds, 'seed')} ± the standard deviation."
    return Panel("seeds", "Over all seeds", explanation, (), (FigureTable(("figure", *policies), rows),))


def _words(name: str) -> str:
    spelled = name.replace("_gpu_s", " GPU-hours").removesuffix("_s").replace("_", " ")
    return spelled.replace("gpu", "GPU").replace("jct", "completion time").replace("queueing", "queueing time")


def _aggregate(name: str, aggregate: Aggregate) -> str:
    format_mean: Callable[[float], str] = number
    if name in _RATES:
        format_mean = percent
    elif name.endswith("_gpu_s"):
        format_mean = gpu_hours
    elif name.endswith("_s"):
        format_mean = duration
    if aggregate.seeds == 0:
        return NOTHING
    return format_mean(aggregate.mean) + (
        f" ± {format_mean(aggregate.standard_deviation)}" if aggregate.seeds > 1 else ""
    )


def _probability(p: float) -> str:
    if not isfinite(p):
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"
