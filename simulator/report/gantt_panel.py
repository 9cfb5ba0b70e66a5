"""Which machine ran what, in a window of the run: a row per machine, a lane per GPU, a bar per attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from domain.events import JsonValue
from simulator.report.panel import OTHERS, SERIES, FigureTable, LabelledRun, Panel, Picture, colour, numbers, texts
from simulator.report.ranking import largest_and_others
from simulator.report.wording import duration, number, time_unit
from simulator.results.holdings import Holdings, holdings_of
from simulator.results.run_record import AttemptEnd, Integers, Reals, RunRecord

MOST_MACHINES = 24
_MOST_BARS = 1_500
_TOLD_BARS = 60
_LEAST_ROW_PX, _MOST_ROW_PX = 22, 60
_LANE_PX = 5
_WINDOWS_S = (600.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 43_200.0, 86_400.0)
"""Lengths of the busiest window."""
_READABLE_BARS = 700
"""More make an unreadable picture."""


@dataclass(frozen=True, slots=True)
class GanttChoice:
    """What to show. Without a window it is the busiest one; without machines those with most changes in it."""

    from_s: float | None = None
    """Seconds since the beginning of the run."""
    length_s: float | None = None
    machines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class _Bars:
    """Pieces to draw: a share of an attempt on neighbouring lanes of a machine."""

    share: list[int]
    row: list[float]
    """Of the middle; a machine's row is 1 high."""
    height: list[float]


def gantt_panel(runs: Sequence[LabelledRun], choice: GanttChoice | None = None) -> Panel:
    """The window of the choice, or by default the busiest one and the whole run. Raises ValueError for a bad choice."""
    pictures, tables = [], []
    for run in runs:
        holdings = holdings_of(run.record)
        for what, from_s, until_s in _windows(run.record, holdings, choice):
            label = f"{run.label}, {what}" if len(runs) > 1 else what
            machines = _machines(run.record, holdings, from_s, until_s, choice)
            picture, table = _picture(run.record, holdings, label, from_s, until_s, machines)
            pictures.append(picture)
            tables.append(table)
    explanation = (
        "A row is a machine, a lane in it a GPU (which of its GPUs is not recorded: lanes are filled in order), a bar "
        "an attempt, coloured by tenant. A cross ends what was preempted."
    )
    if not any(run.record.shares.gpus.size for run in runs):
        return Panel("machines", "Machines", "Nothing ran on a GPU, so there is nothing to show.", (), (), wide=True)
    return Panel("machines", "Machines", explanation, tuple(pictures), tuple(tables), wide=True)


def _windows(record: RunRecord, holdings: Holdings, choice: GanttChoice | None) -> list[tuple[str, float, float]]:
    span_s = record.ended_s - record.started_s
    length_s = _length_s(record, holdings, span_s)
    if choice is not None and choice.length_s is not None:
        if choice.length_s <= 0:
            raise ValueError(f"a window must be longer than nothing; got {choice.length_s:g} s")
        length_s = choice.length_s
    if choice is not None and choice.from_s is not None:
        if not 0 <= choice.from_s < max(span_s, 1.0):
            raise ValueError(
                f"a window from {choice.from_s:g} s on is not in the run of {record.policy!r}, "
                f"which lasted {span_s:g} s"
            )
        from_s = record.started_s + choice.from_s
        return [(f"{duration(choice.from_s)} after the beginning", from_s, from_s + length_s)]
    from_s = _busiest(record, holdings, length_s)
    windows = [(f"the busiest {duration(length_s)}", from_s, from_s + length_s)]
    if length_s < 0.5 * span_s and choice is None:
        machines = _machines(record, holdings, record.started_s, record.ended_s, None)
        if len(machines) >= min(8, len(record.machines.names)):
            windows.append(("the whole run", record.started_s, record.ended_s))
    return windows


def _length_s(record: RunRecord, holdings: Holdings, span_s: float) -> float:
    """A thirtieth of the run or somewhat more; less where that is more than can be read."""
    for length_s in reversed(_WINDOWS_S[: 1 + int(np.searchsorted(_WINDOWS_S[:-1], span_s / 30))]):
        from_s = _busiest(record, holdings, length_s)
        bars = np.sort(_bars_of_machines(record, holdings, from_s, from_s + length_s))[::-1]
        if bars[:MOST_MACHINES].sum() <= _READABLE_BARS:
            return min(length_s, max(span_s, 1.0))
    return min(_WINDOWS_S[0], max(span_s, 1.0))


def _busiest(record: RunRecord, holdings: Holdings, length_s: float) -> float:
    """Where most attempts begin and end in so much time; the first of equals."""
    times = np.sort(np.concatenate((holdings.from_s, holdings.until_s)))
    if not len(times):
        return record.started_s
    latest = max(record.started_s, record.ended_s - length_s)
    starts = np.unique(np.clip(times, record.started_s, latest))
    inside = np.searchsorted(times, starts + length_s, side="right") - np.searchsorted(times, starts)
    return float(starts[int(np.argmax(inside))])


def _machines(
    record: RunRecord, holdings: Holdings, from_s: float, until_s: float, choice: GanttChoice | None
) -> Integers:
    """Their positions, in the order of the fleet: those asked for, or those with most bars, within what can be drawn."""
    if choice is not None and choice.machines:
        places = {name: position for position, name in enumerate(record.machines.names)}
        unknown = [name for name in choice.machines if name not in places]
        if unknown:
            known = ", ".join(record.machines.names[:5])
            raise ValueError(f"there is no machine {unknown[0]!r} with GPUs in the fleet; there are {known}, ...")
        return np.array(sorted(places[name] for name in choice.machines), dtype=np.int64)
    bars = _bars_of_machines(record, holdings, from_s, until_s)
    order = np.argsort(-bars, kind="stable")[:MOST_MACHINES]
    fitting = max(1, int(np.searchsorted(np.cumsum(bars[order]), _MOST_BARS, side="right")))
    return np.sort(order[:fitting])


def _bars_of_machines(record: RunRecord, holdings: Holdings, from_s: float, until_s: float) -> Integers:
    seen = (holdings.until_s > from_s) & (holdings.from_s < until_s)
    return np.bincount(holdings.machine[seen], minlength=len(record.machines.names))


def _picture(
    record: RunRecord, holdings: Holdings, label: str, from_s: float, until_s: float, machines: Integers
) -> tuple[Picture, FigureTable]:
    unit_name, unit = time_unit(until_s - from_s)
    seen = (holdings.until_s > from_s) & (holdings.from_s < until_s) & np.isin(holdings.machine, machines)
    shares = np.flatnonzero(seen)
    # The earliest ones, when a choice has more than can be drawn.
    shares = shares[np.lexsort((shares, holdings.from_s[shares]))][: 2 * _MOST_BARS]
    bars = _lanes(record, holdings, shares, machines)
    attempts = holdings.attempt[shares]
    owners = np.array(record.tenants)[record.workloads.tenant[record.attempts.workload[attempts]]]
    tenants, place_of = largest_and_others(owners, SERIES)
    begins = (np.maximum(holdings.from_s, from_s) - from_s) / unit
    ends = (np.minimum(holdings.until_s, until_s) - from_s) / unit
    tenant_of = {int(share): place_of(str(owner)) for share, owner in zip(shares, owners, strict=True)}
    traces = []
    for place, tenant in enumerate(tenants):
        mine = [at for at, share in enumerate(bars.share) if tenant_of[share] == place]
        rows = np.array([bars.share[at] for at in mine], dtype=np.int64)
        traces.append(_tenant_trace(record, holdings, tenant, place, bars, mine, begins[rows], ends[rows]))
    traces.append(_preemptions(record, holdings, bars, ends, until_s))
    names = [record.machines.names[machine] for machine in machines]
    lanes = int(record.machines.gpus[machines].max(initial=1))
    layout: dict[str, JsonValue] = {
        "barmode": "overlay",
        "bargap": 0,
        "height": 150 + int(np.clip(_LANE_PX * lanes, _LEAST_ROW_PX, _MOST_ROW_PX)) * len(names),
        "xaxis": {
            "title": {"text": f"{unit_name}, from {duration(from_s - record.started_s)} after the beginning on"},
            "range": [0, (until_s - from_s) / unit],
            "zeroline": False,
        },
        "yaxis": {
            "tickvals": list[JsonValue](range(len(names))),
            "ticktext": texts(names),
            "range": [len(names) - 0.4, -0.6],
            "zeroline": False,
        },
        "hovermode": "closest",
    }
    return Picture(label, tuple(traces), layout), _table(record, holdings, label, shares, from_s)


def _lanes(record: RunRecord, holdings: Holdings, shares: Integers, machines: Integers) -> _Bars:
    """Gives each share, in the order of their beginnings, free lanes of its machine; neighbouring ones where possible."""
    row_of = {int(machine): row for row, machine in enumerate(machines)}
    free_from_s = {int(machine): [-np.inf] * int(record.machines.gpus[machine]) for machine in machines}
    bars = _Bars([], [], [])
    for share in shares.tolist():
        machine, wanted = int(holdings.machine[share]), int(holdings.gpus[share])
        lanes = free_from_s[machine]
        begin, end = float(holdings.from_s[share]), float(holdings.until_s[share])
        free = [lane for lane, since_s in enumerate(lanes) if since_s <= begin + 1e-6]
        together = next((free[at : at + wanted] for at in range(len(free) - wanted + 1)
                         if free[at + wanted - 1] - free[at] == wanted - 1), None)  # fmt: skip
        # A clock that is not exact lets attempts overlap for a moment: then the lanes that are free the soonest.
        chosen = together or sorted(sorted(range(len(lanes)), key=lambda lane: (lanes[lane], lane))[:wanted])
        for lane in chosen:
            lanes[lane] = end
        for first, count in _neighbours(chosen):
            bars.share.append(share)
            bars.row.append(row_of[machine] - 0.45 + 0.9 * (first + count / 2) / len(lanes))
            bars.height.append(0.9 * count / len(lanes) * 0.94)
    return bars


def _neighbours(lanes: Sequence[int]) -> list[tuple[int, int]]:
    """Runs of lanes that follow each other: the first of each, and how many."""
    found: list[tuple[int, int]] = []
    for lane in lanes:
        if found and lane == found[-1][0] + found[-1][1]:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((lane, 1))
    return found


def _tenant_trace(
    record: RunRecord,
    holdings: Holdings,
    tenant: str,
    series: int,
    bars: _Bars,
    mine: Sequence[int],
    begins: Reals,
    ends: Reals,
) -> dict[str, JsonValue]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": tenant,
        "base": numbers(begins, 5),
        "x": numbers(ends - begins, 5),
        "y": numbers([bars.row[at] for at in mine], 6),
        "width": numbers([bars.height[at] for at in mine], 3),
        "customdata": texts([_told(record, holdings, bars.share[at]) for at in mine]),
        "marker": {
            "color": "@muted" if tenant == OTHERS else colour(series),
            "opacity": 0.88,
            "line": {"color": "@surface", "width": 0.5},
        },
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _preemptions(
    record: RunRecord, holdings: Holdings, bars: _Bars, ends: Reals, until_s: float
) -> dict[str, JsonValue]:
    cut = [
        at
        for at, share in enumerate(bars.share)
        if record.attempts.end[holdings.attempt[share]] == AttemptEnd.PREEMPTED and holdings.until_s[share] <= until_s
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "preempted",
        "x": numbers(ends[np.array([bars.share[at] for at in cut], dtype=np.int64)], 5),
        "y": numbers([bars.row[at] for at in cut], 6),
        "marker": {"symbol": "x-thin", "size": 7, "line": {"color": "@text", "width": 1.6}},
        "hoverinfo": "skip",
        "showlegend": bool(cut),
    }


def _told(record: RunRecord, holdings: Holdings, share: int) -> str:
    """What a bar says under the pointer."""
    attempt = int(holdings.attempt[share])
    attempts, workloads = record.attempts, record.workloads
    workload = int(attempts.workload[attempt])
    how = AttemptEnd(int(attempts.end[attempt])).name.lower().replace("_", " ")
    return (
        f"{_escaped(workloads.ids[workload])} #{attempts.number[attempt]}<br>"
        f"{_escaped(record.tenants[workloads.tenant[workload]])}, priority {attempts.priority[attempt]}<br>"
        f"{holdings.gpus[share]} of {attempts.gpus[attempt]} GPUs, "
        f"{duration(float(holdings.until_s[share] - holdings.from_s[share]))}, {how}"
    )


def _escaped(name: str) -> str:
    """Plotly takes some markup in texts."""
    return name.replace("&", "&amp;").replace("<", "&lt;")


def _table(record: RunRecord, holdings: Holdings, label: str, shares: Integers, from_s: float) -> FigureTable:
    attempts, workloads = record.attempts, record.workloads
    rows = []
    for share in shares[:_TOLD_BARS].tolist():
        attempt = int(holdings.attempt[share])
        workload = int(attempts.workload[attempt])
        rows.append(
            (
                record.machines.names[holdings.machine[share]],
                f"{workloads.ids[workload]} #{attempts.number[attempt]}",
                record.tenants[workloads.tenant[workload]],
                str(holdings.gpus[share]),
                duration(float(holdings.from_s[share] - from_s)),
                duration(float(holdings.until_s[share] - from_s)),
                AttemptEnd(int(attempts.end[attempt])).name.lower().replace("_", " "),
            )
        )
    more = f", the first {len(rows)} of {number(len(shares))}" if len(shares) > len(rows) else ""
    head = ("machine", "attempt", "tenant", "GPUs", "from (in the window)", "until", "end")
    return FigureTable(head, tuple(rows), caption=f"{label}{more}")
