"""Loan schedules: how many machines of which inference cluster are lent to training, from when on (Lyra §2.1, §7.1).

A schedule is a CSV file (`t_s,cluster,machines`), or is made from the utilisation of an inference fleet: what it leaves
idle beyond a headroom is lent. `t_s` is a time on the trace's clock.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from domain.fleet import Fleet
from domain.identifiers import ClusterId
from formats.problems import FieldProblem, FormatError, suggestion
from formats.text_stream import read_lines, write_text_stream
from formats.trace_cells import BadCell, name_cell, number_cell, whole_cell
from regional_scheduler.forecasting.history import LoadHistory
from regional_scheduler.forecasting.lendable import HEADROOM, LOOK_EVERY_S, lendable_machines, machines_to_keep
from regional_scheduler.forecasting.policy import Forecaster

COLUMNS = ("t_s", "cluster", "machines")
BUSY_FRACTION = "busy_pod_fraction"
SERIES_COLUMNS = (BUSY_FRACTION, "requests", "gpu_instances")
"""How busy inference is: a share, or a count."""
GREATEST_MACHINES = 1_000_000
_ROUNDING = 1e-9
_MOST_POINTS = 15 * 288
"""Of a history, as far as forecasts look back."""


@dataclass(frozen=True, slots=True)
class LoanStep:
    """From `t_s` on, so many machines of the cluster are lent to training; before its first step, none."""

    t_s: float
    cluster: ClusterId
    machines: int
    short: int = 0
    """How many machines inference wants back beyond those that are on loan: it has too few in all."""


@dataclass(frozen=True, slots=True)
class LoanSchedule:
    """All steps, in the order of their times; two of one cluster are never at the same time.

    The clusters that it names are the inference clusters: what is not lent of them takes no training work.
    """

    steps: tuple[LoanStep, ...]

    def clusters(self) -> tuple[ClusterId, ...]:
        """The inference clusters, sorted."""
        return tuple(sorted({step.cluster for step in self.steps}))


@dataclass(frozen=True, slots=True)
class UtilisationPoint:
    """From `t_s` until the next point, this fraction (0 to 1) of an inference fleet is busy."""

    t_s: float
    busy_fraction: float


def read_loans(file: Path, fleet: Fleet) -> LoanSchedule:
    """The schedule in a CSV file; raises FormatError that names lines and columns, and what `check_loans` finds."""
    source = str(file)
    steps: list[LoanStep] = []
    places: list[str] = []
    problems: list[FieldProblem] = []
    for line, cells in _rows(file, COLUMNS):
        try:
            step = LoanStep(
                number_cell("t_s", cells["t_s"]),
                ClusterId(name_cell("cluster", cells["cluster"])),
                whole_cell("machines", cells["machines"], 0, GREATEST_MACHINES),
            )
        except BadCell as error:
            problems.append(FieldProblem(f"line {line}, column {error.column}", error.description))
            continue
        steps.append(step)
        places.append(f"line {line}")
    if not steps and not problems:
        problems.append(FieldProblem("", "lists no loan; a line such as 0,inference,4 lends four machines at once"))
    problems += _problems(steps, fleet, places)
    if problems:
        raise FormatError(source, problems)
    return LoanSchedule(tuple(steps))


def write_loans(file: Path, schedule: LoanSchedule) -> None:
    """Writes the schedule as `read_loans` reads it."""
    with write_text_stream(file) as stream:
        stream.write(",".join(COLUMNS) + "\n")
        for step in schedule.steps:
            stream.write(f"{step.t_s!r},{step.cluster},{step.machines}\n")


def check_loans(schedule: LoanSchedule, fleet: Fleet, source: str) -> None:
    """Raises FormatError when the fleet has no such clusters or machines, or times fall."""
    places = [f"step {number}" for number in range(1, len(schedule.steps) + 1)]
    problems = _problems(schedule.steps, fleet, places)
    if problems:
        raise FormatError(source, problems)


def read_utilisation(file: Path) -> tuple[UtilisationPoint, ...]:
    """The curve in a CSV file with the column t_s and one of how busy inference is; others are passed over.

    That is `busy_pod_fraction`, from 0 to 1, or a count (`requests`, `gpu_instances`), of whose greatest value it is the share.
    Raises FormatError.
    """
    points: list[tuple[float, float]] = []
    problems: list[FieldProblem] = []
    measured = ""
    for line, cells in _rows(file, ("t_s",)):
        measured = next((name for name in SERIES_COLUMNS if name in cells), "")
        if not measured:
            described = f"has none of the columns {', '.join(SERIES_COLUMNS)}; one must say how busy inference is"
            raise FormatError(str(file), [FieldProblem("line 1", described)])
        try:
            point = number_cell("t_s", cells["t_s"]), number_cell(measured, cells[measured])
        except BadCell as error:
            problems.append(FieldProblem(f"line {line}, column {error.column}", error.description))
            continue
        if measured == BUSY_FRACTION and point[1] > 1:
            problems.append(FieldProblem(f"line {line}, column {measured}", f"must be at most 1, not {point[1]:g}"))
        if points and point[0] <= points[-1][0]:
            described = f"must be later than the line before it ({points[-1][0]:g}), not {point[0]:g}"
            problems.append(FieldProblem(f"line {line}, column t_s", described))
        points.append(point)
    if not points and not problems:
        problems.append(
            FieldProblem("", "has no point of a curve; a line such as 0,0.4 below t_s,busy_pod_fraction is one")
        )
    if problems:
        raise FormatError(str(file), problems)
    greatest = 1.0 if measured == BUSY_FRACTION else max([value for _, value in points] + [_ROUNDING])
    return tuple(UtilisationPoint(t_s, value / greatest) for t_s, value in points)


def loans_of_utilisation(
    curve: Sequence[UtilisationPoint],
    cluster: ClusterId,
    machines: int,
    *,
    until_s: float | None = None,
    headroom: float = HEADROOM,
    look_every_s: float = LOOK_EVERY_S,
    forecaster: Forecaster | None = None,
) -> LoanSchedule:
    """What a cluster of so many machines lends when it is as busy as the curve says (Lyra §6, §7.1).

    Every `look_every_s` from the curve's beginning on, it keeps what is busy, or will be until the next look as the
    forecast has it, and `headroom` of all its machines, each rounded up, and lends the rest. None forecasts: what
    will be busy is known. With `until_s` the curve is repeated until then: its last point lasts as long as the one before
    it. A step stands only where something changes. Raises ValueError for an empty curve, or look_every_s not above 0.
    """
    if not curve or look_every_s <= 0:
        raise ValueError("loans need a curve with at least one point, and looks that are some time apart")
    first_s = curve[0].t_s
    last_span_s = curve[-1].t_s - curve[-2].t_s if len(curve) > 1 else look_every_s
    period_s = curve[-1].t_s + last_span_s - first_s
    end_s = first_s + period_s if until_s is None else until_s
    repeated = _repeated(curve, period_s)
    now_busy = next(repeated)
    following = next(repeated)
    steps: list[LoanStep] = []
    loads: list[float] = []
    for look in range(max(1, math.ceil((end_s - first_s) / look_every_s - _ROUNDING))):
        t_s = first_s + look * look_every_s
        while following.t_s <= t_s:
            now_busy, following = following, next(repeated)
        loads.append(now_busy.busy_fraction)
        forecast = now_busy.busy_fraction
        if forecaster is not None:
            forecast = forecaster.forecast(LoadHistory(np.array(loads[-_MOST_POINTS:]), look_every_s))
        else:
            while following.t_s < min(t_s + look_every_s, end_s):
                now_busy, following = following, next(repeated)
                forecast = max(forecast, now_busy.busy_fraction)
        lent = lendable_machines(machines, loads[-1], forecast, headroom)
        kept = machines_to_keep(machines, loads[-1], forecast, headroom)
        step = LoanStep(t_s, cluster, lent, max(0, kept - machines))
        if not steps or (steps[-1].machines, steps[-1].short) != (step.machines, step.short):
            steps.append(step)
    return LoanSchedule(tuple(steps))


@dataclass(frozen=True, slots=True)
class LoadSeries:
    """How busy an inference cluster is."""

    cluster: ClusterId
    curve: tuple[UtilisationPoint, ...]
    forecaster: Forecaster | None
    """None: what is to come is known."""


def loans_of_series(
    series: Sequence[LoadSeries], fleet: Fleet, from_s: float, until_s: float, source: str
) -> LoanSchedule:
    """What inference clusters lend from one time to another, each as busy as its curve, which is repeated and begins then.

    Raises FormatError for a cluster that the fleet does not have.
    """
    sizes = {
        cluster.cluster: sum(1 for _ in cluster.machines()) for region in fleet.regions for cluster in region.clusters
    }
    steps: list[LoanStep] = []
    for one in series:
        if one.cluster not in sizes:
            hint = suggestion(one.cluster, sizes, "cluster")
            raise FormatError(source, [FieldProblem(one.cluster, f"is not in the fleet; {hint}")])
        first_s = one.curve[0].t_s
        begun = [UtilisationPoint(point.t_s - first_s, point.busy_fraction) for point in one.curve]
        schedule = loans_of_utilisation(
            begun, one.cluster, sizes[one.cluster], until_s=until_s - from_s, forecaster=one.forecaster
        )
        steps += [replace(step, t_s=step.t_s + from_s) for step in schedule.steps]
    return LoanSchedule(tuple(sorted(steps, key=lambda step: (step.t_s, step.cluster))))


def _repeated(curve: Sequence[UtilisationPoint], period_s: float) -> Iterator[UtilisationPoint]:
    """The curve, again and again."""
    turn = 0
    while True:
        for point in curve:
            yield UtilisationPoint(point.t_s + turn * period_s, point.busy_fraction)
        turn += 1


def _problems(steps: Sequence[LoanStep], fleet: Fleet, places: Sequence[str]) -> list[FieldProblem]:
    """What the steps, read at these places, have against each other or against the fleet."""
    sizes = {
        cluster.cluster: sum(1 for _ in cluster.machines()) for region in fleet.regions for cluster in region.clusters
    }
    problems: list[FieldProblem] = []
    latest: dict[ClusterId, float] = {}
    before_s = -math.inf
    for place, step in zip(places, steps, strict=True):
        size = sizes.get(step.cluster)
        if size is None:
            hint = suggestion(step.cluster, sizes, "cluster")
            problems.append(FieldProblem(f"{place}, column cluster", f"{step.cluster} is not in the fleet; {hint}"))
        elif step.machines > size:
            described = f"lends {step.machines}, but cluster {step.cluster} has {size}"
            problems.append(FieldProblem(f"{place}, column machines", described))
        if step.t_s < before_s:
            described = f"falls from {before_s:g} to {step.t_s:g}; sort the lines by time"
            problems.append(FieldProblem(f"{place}, column t_s", described))
        elif latest.get(step.cluster) == step.t_s:
            described = f"is the second line of cluster {step.cluster} at {step.t_s:g}; leave one out"
            problems.append(FieldProblem(f"{place}, column t_s", described))
        latest[step.cluster] = step.t_s
        before_s = max(before_s, step.t_s)
    return problems


def _rows(file: Path, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Line numbers and cells by column; raises FormatError when a column is missing or a line has too many cells."""
    source = str(file)
    reader = csv.reader((line for _, line in read_lines(file)), strict=True)
    header: list[str] | None = None
    try:
        for cells in reader:
            stripped = [cell.strip() for cell in cells]
            if not any(stripped):
                continue
            if header is None:
                header = stripped
                missing = [column for column in columns if column not in header]
                if missing:
                    described = f"has no column {', '.join(missing)}; the first line names the columns"
                    raise FormatError(source, [FieldProblem(f"line {reader.line_num}", described)])
            elif len(stripped) != len(header):
                described = f"has {len(stripped)} cells, but there are {len(header)} columns: {', '.join(header)}"
                raise FormatError(source, [FieldProblem(f"line {reader.line_num}", described)])
            else:
                yield reader.line_num, dict(zip(header, stripped, strict=True))
    except csv.Error as error:
        raise FormatError(source, [FieldProblem(f"line {reader.line_num}", f"is not CSV: {error}")]) from error
