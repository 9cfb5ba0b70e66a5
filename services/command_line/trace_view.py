"""A trace for people: figures as tables, and its load over time as a small chart of characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from services.command_line.output import TextTable
from services.command_line.wording import duration, number

if TYPE_CHECKING:
    from simulator.inputs.summary import Group, LoadSeries, Spread, TraceSummary
    from simulator.inputs.trace_files import Trace

SHOWN_GROUPS = 15
_BLOCKS = " ▁▂▃▄▅▆▇█"
_CHART_WIDTH = 72
_CHART_HEIGHT = 8


def summary_tables(trace: Trace, summary: TraceSummary) -> list[TextTable]:
    """Everything that `inspect` shows but the chart and the bad rows."""
    overview = [
        ("format", trace.format),
        ("workloads", f"{summary.workloads:,}"),
        ("without GPUs", f"{summary.workloads - summary.gpu_workloads:,}"),
        ("tenants", f"{summary.tenants:,}"),
        ("regions", f"{len(summary.by_region):,}"),
        ("first submission", _on_clock(summary.first_submit_s)),
        ("last submission", _on_clock(summary.last_submit_s)),
        ("GPU-hours", number(round(summary.gpu_hours))),
        ("offered GPUs", number(round(summary.offered_gpus, 1))),
        ("GPUs wanted at once, mean", number(round(summary.wanted_gpus_mean, 1))),
        ("GPUs wanted at once, p95", number(summary.wanted_gpus_p95)),
        ("GPUs wanted at once, max", number(summary.wanted_gpus_max)),
    ]
    tables = [
        TextTable("Trace", ("what", "value"), overview, frozenset({1})),
        _spreads(summary.gpus, summary.duration_s),
        _groups("By GPUs", "gpus", summary.by_gpus),
        _groups("By tenant", "tenant", summary.by_tenant),
    ]
    if summary.by_region:
        tables.append(_groups("By region", "region", summary.by_region))
    return tables


def load_chart(load: LoadSeries) -> str:
    """GPUs wanted over time, if every workload ran as soon as it was submitted."""
    heights = _resampled(load.wanted_gpus, _CHART_WIDTH)
    top = max(heights)
    if top <= 0:
        return "no GPUs are wanted at any time"
    lines = [f"GPUs wanted if all ran at once, from {_on_clock(load.from_s[0])}; highest column {number(round(top))}"]
    for level in range(_CHART_HEIGHT - 1, -1, -1):
        filled = (min(1.0, max(0.0, height / top * _CHART_HEIGHT - level)) for height in heights)
        lines.append("|" + "".join(_BLOCKS[round(part * (len(_BLOCKS) - 1))] for part in filled).rstrip())
    end_s = load.from_s[-1] + load.bucket_s
    lines.append("+" + "-" * len(heights))
    lines.append(f" {_on_clock(load.from_s[0])}".ljust(max(1, len(heights) - 12)) + _on_clock(end_s).rjust(12))
    return "\n".join(lines)


def _spreads(gpus: Spread, duration_s: Spread) -> TextTable:
    head = ("of GPU workloads", "mean", "p10", "p50", "p90", "p95", "p99", "max")
    return TextTable(
        "Size and length",
        head,
        [
            ("GPUs", *(number(round(value, 2)) for value in _values(gpus))),
            ("duration", *(duration(value) for value in _values(duration_s))),
        ],
        frozenset(range(1, len(head))),
    )


def _values(spread: Spread) -> tuple[float, ...]:
    return (spread.mean, spread.p10, spread.p50, spread.p90, spread.p95, spread.p99, spread.max)


def _groups(title: str, name: str, groups: Sequence[Group]) -> TextTable:
    total = sum(group.gpu_hours for group in groups) or 1.0
    rows = [
        (group.name, f"{group.workloads:,}", number(round(group.gpu_hours)), f"{group.gpu_hours / total:.1%}")
        for group in groups[:SHOWN_GROUPS]
    ]
    rest = groups[SHOWN_GROUPS:]
    if rest:
        hours = sum(group.gpu_hours for group in rest)
        workloads = sum(group.workloads for group in rest)
        rows.append((f"{len(rest)} more", f"{workloads:,}", number(round(hours)), f"{hours / total:.1%}"))
    return TextTable(title, (name, "workloads", "GPU-hours", "share"), rows, frozenset({1, 2, 3}))


def _resampled(values: Sequence[float], width: int) -> list[float]:
    """The means of as many equal parts as fit."""
    parts = min(width, len(values))
    edges = [len(values) * part // parts for part in range(parts + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(edges) if end > start]


def _on_clock(seconds: float) -> str:
    """A time of the trace's own clock: days and hours of it."""
    return duration(seconds) if seconds else "0"
