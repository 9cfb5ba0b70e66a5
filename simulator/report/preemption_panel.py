"""Preemptions by tenant and by priority: victims against the workloads that they made way for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from domain.events import JsonValue
from domain.tenant import LOWEST_PRIORITY
from simulator.report.panel import FigureTable, LabelledRun, Panel, Picture, texts
from simulator.report.ranking import largest_and_others
from simulator.report.wording import gpu_hours, number
from simulator.results.figures import rows_of
from simulator.results.grouping import sums_by_group
from simulator.results.run_record import NO_ROW, AttemptEnd, Integers, Reals, RunRecord


def preemption_panel(runs: Sequence[LabelledRun]) -> Panel:
    """Matrices of victims (rows) and the workloads that they made way for (columns)."""
    pictures, tables = [], []
    for run in runs:
        record = run.record
        victims = np.flatnonzero((record.attempts.end == AttemptEnd.PREEMPTED) & (record.attempts.evicted_by != NO_ROW))
        if not len(victims):
            continue
        gpu_s = rows_of(record).held_gpu_s[victims]
        for what, (names, evicted, evicting) in (
            ("by tenant", _tenants(record, victims)),
            ("by priority", _priorities(record, victims)),
        ):
            label = f"{run.label}, {what}" if len(runs) > 1 else what
            counts, held = (
                _matrix(names, evicted, evicting, np.ones(len(victims))),
                _matrix(names, evicted, evicting, gpu_s),
            )
            pictures.append(Picture(label, (_heat(names, counts, held),), _layout(len(names))))
            tables.append(_table(label, names, counts, held))
    title = "Preemptions"
    if not pictures:
        return Panel("preemptions", title, "No attempt was preempted.", (), ())
    explanation = (
        "Attempts that were preempted, by the victim (rows) and by the workload that needed the capacity (columns)."
    )
    return Panel("preemptions", title, explanation, tuple(pictures), tuple(tables))


def _tenants(record: RunRecord, victims: Integers) -> tuple[tuple[str, ...], Integers, Integers]:
    """Names, and for each victim the place of its tenant and of the tenant that it made room for."""
    owners = np.array(record.tenants)[record.workloads.tenant]
    evicted, evicting = owners[record.attempts.workload[victims]], owners[record.attempts.evicted_by[victims]]
    names, place_of = largest_and_others([*evicted, *evicting])
    return (
        names,
        np.array([place_of(str(name)) for name in evicted], dtype=np.int64),
        np.array([place_of(str(name)) for name in evicting], dtype=np.int64),
    )


def _priorities(record: RunRecord, victims: Integers) -> tuple[tuple[str, ...], Integers, Integers]:
    """The standing with which attempts ran; of the workloads that preempted them, that of their first attempt."""
    names = tuple(str(priority) for priority in range(LOWEST_PRIORITY + 1))
    return names, record.attempts.priority[victims], record.workloads.priority[record.attempts.evicted_by[victims]]


def _matrix(names: tuple[str, ...], evicted: Integers, evicting: Integers, weights: Reals) -> Reals:
    size = len(names)
    return sums_by_group(evicted * size + evicting, weights, size * size).reshape(size, size)


def _heat(names: tuple[str, ...], counts: Reals, held: Reals) -> dict[str, JsonValue]:
    shown: list[JsonValue] = [[None if not count else int(count) for count in row] for row in counts.tolist()]
    return {
        "type": "heatmap",
        "x": texts(names),
        "y": texts(names),
        "z": shown,
        "text": [[number(count) if count else "" for count in row] for row in counts.tolist()],
        "texttemplate": "%{text}",
        "customdata": [[f"{gpu_hours(hours)} GPU-hours" for hours in row] for row in held.tolist()],
        "colorscale": [[0, "@heat-low"], [1, "@heat-high"]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hovertemplate": "%{y} preempted for %{x}: %{z}, %{customdata}<extra></extra>",
    }


def _layout(size: int) -> dict[str, JsonValue]:
    return {
        "xaxis": {"type": "category", "title": {"text": "made room for"}, "showgrid": False},
        "yaxis": {
            "type": "category", "title": {"text": "was preempted"}, "autorange": "reversed", "showgrid": False,
        },
        "height": 190 + 34 * max(size, 5),
        "hovermode": "closest",
    }  # fmt: skip


def _table(label: str, names: tuple[str, ...], counts: Reals, held: Reals) -> FigureTable:
    rows = [
        (victim, taker, number(counts[i, j]), gpu_hours(float(held[i, j])))
        for i, victim in enumerate(names)
        for j, taker in enumerate(names)
        if counts[i, j]
    ]
    return FigureTable(("was preempted", "made room for", "times", "GPU-hours held"), tuple(rows), caption=label)
