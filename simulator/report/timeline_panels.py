"""What happened over time: GPUs in use, the queue, demand and supply of regions. All values are exact averages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from domain.events import JsonValue
from simulator.report.panel import SERIES, FigureTable, LabelledRun, Panel, Picture, colour, numbers, texts
from simulator.report.wording import number, percent, time_unit
from simulator.results.capacity import (
    demand_curve,
    held_curve,
    queue_curve,
    running_curve,
    supply_curve,
    waiting_curve,
)
from simulator.results.run_record import Reals, RunRecord
from simulator.results.waits import Waits, waits_of

_SPANS = 360
"""Points of a curve."""
_TOLD_SPANS = 48
"""Rows of a table."""


def gpu_use_panel(runs: Sequence[LabelledRun]) -> Panel:
    """GPUs allocated against GPUs available, and asked for."""
    rates = _Lines(runs, _allocation_rates)
    allocated = _Lines(runs, lambda record, edges: held_curve(record).averages(edges))
    demanded = _Lines(runs, lambda record, edges: demand_curve(record).averages(edges))
    supplied = _Lines(runs[:1], lambda record, edges: supply_curve(record).averages(edges))
    dashed: list[dict[str, JsonValue]] = [{**trace, "name": "available", "line": {"color": "@muted", "dash": "dash", "width": 1.5}}
              for trace in supplied.traces()]  # fmt: skip
    pictures = (
        Picture("share of the available", rates.traces(100), rates.layout("% of GPUs allocated", most=102)),
        Picture("GPUs allocated", (*allocated.traces(), *dashed), allocated.layout("GPUs allocated")),
        Picture("GPUs asked for", (*demanded.traces(), *dashed), demanded.layout("GPUs asked for")),
    )
    explanation = (
        "Allocated is what attempts held or had reserved; available are the GPUs of machines that were not down; asked "
        "for is what all workloads wanted that had been submitted and had not ended."
    )
    tables = (
        rates.table(percent, "GPUs allocated, share of the available"),
        allocated.table(number, "GPUs allocated"),
        demanded.table(number, "GPUs asked for"),
    )
    return Panel("gpu-use", "GPUs over time", explanation, pictures, tables, wide=True)


def queue_panel(runs: Sequence[LabelledRun]) -> Panel:
    """How many wait, and for how many GPUs."""
    waiting = _Lines(runs, lambda record, edges: queue_curve(waits_of(record)).averages(edges))
    gpus = _Lines(runs, lambda record, edges: waiting_curve(record, waits_of(record)).averages(edges))
    pictures = (
        Picture("workloads", waiting.traces(), waiting.layout("workloads waiting")),
        Picture("GPUs", gpus.traces(), gpus.layout("GPUs that workloads wait for")),
    )
    explanation = "Workloads that were pending or about to start, and the GPUs that they asked for."
    tables = (waiting.table(number, "workloads waiting"), gpus.table(number, "GPUs that they wait for"))
    return Panel("queue", "The queue over time", explanation, pictures, tables, wide=True)


def region_panel(runs: Sequence[LabelledRun]) -> Panel:
    """Demand ÷ supply of each region."""
    pictures, tables = [], []
    for run in runs:
        record = run.record
        edges, axis, unit = _time_axis([record])
        middles = (edges[:-1] + edges[1:]) / 2
        waits = waits_of(record)
        rates = [_demand_of_region(record, waits, region, edges) for region in range(len(record.regions))]
        shown = [region for region in range(len(record.regions)) if record.region_gpus[region] > 0]
        x = numbers((middles - record.started_s) / unit)
        traces = (
            _region_lines(record, shown, rates, x) if len(shown) <= SERIES else _region_map(record, shown, rates, x)
        )
        most = max((float(np.nanmax(rates[region], initial=0.0)) for region in shown), default=0.0)
        layout: dict[str, JsonValue] = {"xaxis": axis, "hovermode": "x unified"}
        if len(shown) > SERIES:
            layout = {"xaxis": axis, "yaxis": {"autorange": "reversed"}, "hovermode": "closest"}
        if len(shown) <= SERIES:
            layout["yaxis"] = {"title": {"text": "demand, % of supply"}, "range": [0, 105 * max(1.0, most)]}
            layout["shapes"] = [
                {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 100, "y1": 100,
                 "line": {"color": "@muted", "dash": "dash", "width": 1}}
            ]  # fmt: skip
        pictures.append(Picture(run.label, traces, layout))
        points = _table_points(len(middles))
        head = (
            f"{time_unit(record.ended_s - record.started_s)[0]} since the beginning",
            *(record.regions[region] for region in shown),
        )
        rows = tuple(
            (f"{(middles[at] - record.started_s) / unit:.4g}", *(percent(float(rates[region][at])) for region in shown))
            for at in points
        )
        tables.append(FigureTable(head, rows, caption=f"{run.label}: demand, share of the supply"))
    explanation = (
        "Demand of a region is what runs there and what waits and will run there (known only afterwards); above 100 % "
        "there is a queue. What never ran is in no region's demand."
    )
    return Panel("regions", "Demand and supply by region", explanation, tuple(pictures), tuple(tables), wide=True)


def _region_lines(
    record: RunRecord, shown: Sequence[int], rates: Sequence[Reals], x: list[JsonValue]
) -> tuple[dict[str, JsonValue], ...]:
    return tuple(
        {
            "type": "scatter",
            "mode": "lines",
            "name": f"{record.regions[region]} ({number(record.region_gpus[region])} GPUs)",
            "x": x,
            "y": numbers(100 * rates[region]),
            "line": {"color": colour(series), "width": 1.8},
            "hovertemplate": "%{y:.0f} %",
        }
        for series, region in enumerate(shown)
    )


def _region_map(
    record: RunRecord, shown: Sequence[int], rates: Sequence[Reals], x: list[JsonValue]
) -> tuple[dict[str, JsonValue], ...]:
    """For more regions than there are colours."""
    return (
        {
            "type": "heatmap",
            "x": x,
            "y": texts([record.regions[region] for region in shown]),
            "z": [numbers(100 * rates[region], 3) for region in shown],
            "colorscale": [[0, "@surface"], [0.5, "@series-0"], [1, "@bad"]],
            "zmin": 0,
            "zmax": 200,
            "colorbar": {"title": {"text": "%"}, "thickness": 12},
            "hovertemplate": "%{y}: %{z:.0f} %<extra></extra>",
        },
    )


def _demand_of_region(record: RunRecord, waits: Waits, region: int, edges: Reals) -> Reals:
    demand = running_curve(record, region).averages(edges) + waiting_curve(record, waits, region).averages(edges)
    return _share(demand, supply_curve(record, region).averages(edges))


def _allocation_rates(record: RunRecord, edges: Reals) -> Reals:
    return _share(held_curve(record).averages(edges), supply_curve(record).averages(edges))


def _share(part: Reals, whole: Reals) -> Reals:
    """Not a number where there is nothing."""
    shares = np.full(len(part), np.nan)
    np.divide(part, whole, out=shares, where=whole > 0)
    return shares


class _Lines:
    """One line per run, over the time since its beginning."""

    def __init__(self, runs: Sequence[LabelledRun], averages: Callable[[RunRecord, Reals], Reals]) -> None:
        self._runs = runs
        self._edges, self._axis, self._unit = _time_axis([run.record for run in runs])
        self._values = []
        for run in runs:
            edges = run.record.started_s + self._edges - self._edges[0]
            # After its end a run has no values.
            there = edges[:-1] < run.record.ended_s
            self._values.append(np.where(there, averages(run.record, edges), np.nan))

    def traces(self, factor: float = 1.0) -> tuple[dict[str, JsonValue], ...]:
        x = numbers(((self._edges[:-1] + self._edges[1:]) / 2 - self._edges[0]) / self._unit)
        return tuple(
            {
                "type": "scatter",
                "mode": "lines",
                "name": run.label,
                "x": x,
                "y": numbers(values * factor),
                "line": {"color": colour(series), "width": 1.8},
                "hovertemplate": "%{y:,.4~g}",
            }
            for series, (run, values) in enumerate(zip(self._runs, self._values, strict=True))
        )

    def layout(self, title: str, most: float | None = None) -> dict[str, JsonValue]:
        y: dict[str, JsonValue] = {"title": {"text": title}, "rangemode": "tozero"}
        if most is not None:
            y["range"] = [0, most]
        return {"xaxis": self._axis, "yaxis": y, "hovermode": "x unified"}

    def table(self, format_value: Callable[[float], str], caption: str) -> FigureTable:
        middles = ((self._edges[:-1] + self._edges[1:]) / 2 - self._edges[0]) / self._unit
        unit = time_unit(float(self._edges[-1] - self._edges[0]))[0]
        return FigureTable(
            (f"{unit} since the beginning", *(run.label for run in self._runs)),
            tuple(
                (f"{middles[at]:.4g}", *(format_value(float(values[at])) for values in self._values))
                for at in _table_points(len(middles))
            ),
            caption=caption,
        )


def _time_axis(records: Sequence[RunRecord]) -> tuple[Reals, dict[str, JsonValue], float]:
    """Edges of equal spans over the longest of the runs (on the first one's clock), the axis, its unit in seconds."""
    span_s = max(record.ended_s - record.started_s for record in records)
    span_s = span_s if span_s > 0 else 1.0
    name, unit = time_unit(span_s)
    edges = records[0].started_s + np.linspace(0.0, span_s, _SPANS + 1)
    return edges, {"title": {"text": f"{name} since the beginning"}, "rangemode": "tozero"}, unit


def _table_points(points: int) -> list[int]:
    """Which points a table shows."""
    return [int(at) for at in np.unique(np.linspace(0, points - 1, min(points, _TOLD_SPANS)).astype(np.int64))]
