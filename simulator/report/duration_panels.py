"""How long things took: distributions of completion and queueing, and waiting by number of GPUs and by tenant."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from domain.events import JsonValue
from simulator.report.panel import FigureTable, LabelledRun, Panel, Picture, colour, numbers, texts
from simulator.report.ranking import largest_and_others
from simulator.report.wording import duration, log_duration_axis, number
from simulator.results.figures import rows_of
from simulator.results.group_figures import gpu_classes
from simulator.results.grouping import positions_by_group
from simulator.results.run_record import Integers, Reals, RunRecord

LEAST_S = 1.0
"""On a logarithmic axis: what took less is drawn here."""
_LEVELS = np.unique(np.concatenate((np.linspace(0, 1, 201), np.linspace(0.95, 1, 101), np.linspace(0.995, 1, 51))))
_TOLD_LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_BOX_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def completion_panel(runs: Sequence[LabelledRun]) -> Panel:
    return _distribution_panel(
        runs,
        "completion",
        "Completion time",
        "How many of the completed workloads had completed so many seconds after their submission.",
        "from submission to completion",
        lambda record: (found := rows_of(record).jct_s)[~np.isnan(found)],
    )


def queueing_panel(runs: Sequence[LabelledRun]) -> Panel:
    return _distribution_panel(
        runs,
        "queueing",
        "Queueing time",
        "How many of the completed workloads had spent no more than this without running: in the queue, waiting for "
        "victims to leave and for containers to start, before the first start and after each eviction.",
        "spent not running",
        completed_queueing_s,
    )


def completed_queueing_s(record: RunRecord) -> Reals:
    """Of the workloads that completed."""
    rows = rows_of(record)
    return rows.queueing_s[~np.isnan(rows.jct_s)]


def _distribution_panel(
    runs: Sequence[LabelledRun],
    name: str,
    title: str,
    explanation: str,
    what: str,
    values_of: Callable[[RunRecord], Reals],
) -> Panel:
    sorted_values = [np.sort(values_of(run.record)) for run in runs]
    drawn = [(run.label, values) for run, values in zip(runs, sorted_values, strict=True) if len(values)]
    traces: tuple[dict[str, JsonValue], ...] = tuple(
        {
            "type": "scatter",
            "mode": "lines",
            "name": run.label,
            "x": numbers(np.maximum(_quantiles(values, _LEVELS), LEAST_S)),
            "y": numbers(100 * _LEVELS),
            "line": {"color": colour(series), "shape": "vh", "width": 2},
            "hovertemplate": "%{y:.1f} % within %{x:,.0f} s<extra>%{fullData.name}</extra>",
        }
        for series, (run, values) in enumerate(zip(runs, sorted_values, strict=True))
        if len(values)
    )
    layout: dict[str, JsonValue] = {
        "xaxis": log_duration_axis(what),
        "yaxis": {"title": {"text": "% of workloads"}, "range": [0, 101]},
    }
    table = FigureTable(
        ("share of workloads", *(label for label, _ in drawn)),
        tuple(
            (f"{100 * level:g} %", *(duration(float(_quantiles(values, np.array([level]))[0])) for _, values in drawn))
            for level in _TOLD_LEVELS
        ),
        caption="within",
    )
    pictures = (Picture("", traces, layout),) if drawn else ()
    nothing = "" if drawn else " No workload completed, so there is nothing to show."
    return Panel(name, title, explanation + nothing, pictures, (table,) if drawn else ())


def waiting_panels(runs: Sequence[LabelledRun]) -> tuple[Panel, Panel]:
    """Queueing by number of GPUs and by tenant."""
    greatest = max(int(run.record.workloads.gpus.max(initial=0)) for run in runs)
    names, _ = gpu_classes(np.array([greatest]))
    by_gpus = _boxes(
        runs,
        "waiting-by-gpus",
        "Waiting by number of GPUs",
        "GPUs asked for",
        names,
        lambda record: gpu_classes(record.workloads.gpus)[1],
    )
    tenants, place_of = largest_and_others(
        [name for run in runs for name in np.array(run.record.tenants)[run.record.workloads.tenant]]
    )

    def tenant_groups(record: RunRecord) -> Integers:
        return np.array([place_of(name) for name in record.tenants], dtype=np.int64)[record.workloads.tenant]

    by_tenant = _boxes(runs, "waiting-by-tenant", "Waiting by tenant", "tenant", tenants, tenant_groups)
    return by_gpus, by_tenant


def _boxes(
    runs: Sequence[LabelledRun],
    name: str,
    title: str,
    axis: str,
    groups: tuple[str, ...],
    group_of: Callable[[RunRecord], Integers],
) -> Panel:
    traces: list[dict[str, JsonValue]] = []
    rows: list[tuple[str, ...]] = []
    for series, run in enumerate(runs):
        found = rows_of(run.record)
        completed = ~np.isnan(found.jct_s)
        waited, group = found.queueing_s[completed], group_of(run.record)[completed]
        members = [
            (groups[place], np.sort(waited[rows_of_group]))
            for place, rows_of_group in enumerate(positions_by_group(group, len(groups)))
            if len(rows_of_group)
        ]
        levels = np.array([_quantiles(values, np.array(_BOX_LEVELS)) for _, values in members]).reshape(-1, 5)
        drawn = np.maximum(levels, LEAST_S)
        traces.append(
            {
                "type": "box",
                "name": run.label,
                "x": texts([group_name for group_name, _ in members]),
                "lowerfence": numbers(drawn[:, 0]),
                "q1": numbers(drawn[:, 1]),
                "median": numbers(drawn[:, 2]),
                "q3": numbers(drawn[:, 3]),
                "upperfence": numbers(drawn[:, 4]),
                "mean": numbers([max(float(values.mean()), LEAST_S) for _, values in members]),
                "marker": {"color": colour(series)},
                "line": {"width": 1.5},
            }
        )
        rows += [
            (group_name, run.label, number(len(values)), duration(float(values.mean())), *map(duration, row))
            for (group_name, values), row in zip(members, levels.tolist(), strict=True)
        ]
    order = {group_name: place for place, group_name in enumerate(groups)}
    rows.sort(key=lambda row: order[row[0]])
    present = {row[0] for row in rows}
    layout: dict[str, JsonValue] = {
        "boxmode": "group",
        "xaxis": {
            "title": {"text": axis},
            "type": "category",
            "categoryorder": "array",
            "categoryarray": texts([group_name for group_name in groups if group_name in present]),
        },
        "yaxis": log_duration_axis("spent not running"),
    }
    explanation = (
        "How long completed workloads spent without running: the box holds the middle half, its line is the median, "
        "the dashed one the mean, the whiskers reach from 5 % to 95 %."
    )
    head = (axis, "run", "workloads", "mean", "5 %", "25 %", "50 %", "75 %", "95 %")
    pictures = (Picture("", tuple(traces), layout),) if rows else ()
    return Panel(name, title, explanation, pictures, (FigureTable(head, tuple(rows)),) if rows else ())


def _quantiles(ordered: Reals, levels: Reals) -> Reals:
    """Observed ones, of sorted values."""
    return ordered[np.maximum(np.ceil(levels * len(ordered)).astype(np.int64) - 1, 0)]
