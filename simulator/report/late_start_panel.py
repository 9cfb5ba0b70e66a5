"""Service levels: which share of the waits took longer than the limit of their priority."""

from __future__ import annotations

from collections.abc import Sequence

from domain.events import JsonValue
from simulator.report.panel import FigureTable, Panel, Picture, colour, numbers, texts
from simulator.report.wording import duration, percent
from simulator.results.figures import RunFigures


def late_start_panel(labels: Sequence[str], figures: Sequence[RunFigures]) -> Panel:
    """By priority, for those priorities that had any waits."""
    title = "Late starts"
    explanation = (
        "The share of waits, from becoming pending (anew after each eviction) to running, that took longer than the "
        "limit of their priority. The level is kept at P95 where at most 5 % did."
    )
    priorities = [
        priority
        for priority in range(len(figures[0].slo_limits_s))
        if any(run.slo_violation_rate[str(priority)] is not None for run in figures)
    ]
    if not priorities:
        return Panel("late-starts", title, "Nothing waited long enough to be judged.", (), ())
    limits_s = figures[0].slo_limits_s
    names = texts([f"{priority}<br>{duration(limits_s[priority])}" for priority in priorities])
    traces: list[dict[str, JsonValue]] = []
    for series, (label, run) in enumerate(zip(labels, figures, strict=True)):
        rates = [run.slo_violation_rate[str(priority)] for priority in priorities]
        traces.append(
            {
                "type": "bar",
                "name": label,
                "x": names,
                "y": numbers([float("nan") if rate is None else 100 * rate for rate in rates]),
                "marker": {"color": colour(series)},
                "hovertemplate": "%{y:.1f} %<extra>%{fullData.name}</extra>",
            }
        )
    layout: dict[str, JsonValue] = {
        "barmode": "group",
        "xaxis": {"type": "category", "title": {"text": "priority, and within which it is to run"}},
        "yaxis": {"title": {"text": "% of waits that took longer"}, "rangemode": "tozero"},
        "shapes": [
            {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 5, "y1": 5,
             "line": {"color": "@muted", "dash": "dash", "width": 1}}
        ],
    }  # fmt: skip
    rows = tuple(
        (
            str(priority),
            duration(limits_s[priority]),
            *(percent(run.slo_violation_rate[str(priority)]) for run in figures),
        )
        for priority in priorities
    )
    table = FigureTable(("priority", "to run within", *labels), rows)
    return Panel("late-starts", title, explanation, (Picture("", tuple(traces), layout),), (table,))
