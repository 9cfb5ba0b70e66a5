"""Loan schedules: how many machines of which inference cluster are lent to training, from when on (Lyra §2.1, §7.1).

A schedule is a CSV file (`t_s,cluster,machines`), or is made from the utilisation of an inference fleet: what it leaves
idle beyond a headroom is lent. `t_s` is a time on the trace's clock.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from domain.fleet import Fleet
from domain.identifiers import ClusterId
from formats.problems import FieldProblem, FormatError, suggestion
from formats.text_stream import read_lines, write_text_stream
from formats.trace_cells import BadCell, name_cell, number_cell, whole_cell

COLUMNS = ("t_s", "cluster", "machines")
UTILISATION_COLUMNS = ("t_s", "busy_pod_fraction")
HEADROOM = 0.02
"""Of an inference cluster's machines, the share that is never lent (Lyra §7.1)."""
LOOK_EVERY_S = 300.0
"""So often Lyra's orchestrator runs (§7.1)."""
GREATEST_MACHINES = 1_000_000
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class LoanStep:
    """From `t_s` on, so many machines of the cluster are lent to training; before its first step, none."""

    t_s: float
    cluster: ClusterId
    machines: int


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
    """The curve in a CSV file with the columns t_s and busy_pod_fraction; others are passed over. Raises FormatError."""
    points: list[UtilisationPoint] = []
    problems: list[FieldProblem] = []
    for line, cells in _rows(file, UTILISATION_COLUMNS):
        try:
            point = UtilisationPoint(
                number_cell("t_s", cells["t_s"]), number_cell("busy_pod_fraction", cells["busy_pod_fraction"])
            )
        except BadCell as error:
            problems.append(FieldProblem(f"line {line}, column {error.column}", error.description))
            continue
        if point.busy_fraction > 1:
            described = f"must be at most 1, not {point.busy_fraction:g}"
            problems.append(FieldProblem(f"line {line}, column busy_pod_fraction", described))
        if points and point.t_s <= points[-1].t_s:
            described = f"must be later than the line before it ({points[-1].t_s:g}), not {point.t_s:g}"
            problems.append(FieldProblem(f"line {line}, column t_s", described))
        points.append(point)
    if not points and not problems:
        problems.append(FieldProblem("", "has no point of a curve"))
    if problems:
        raise FormatError(str(file), problems)
    return tuple(points)


def loans_of_utilisation(
    curve: Sequence[UtilisationPoint],
    cluster: ClusterId,
    machines: int,
    *,
    until_s: float | None = None,
    headroom: float = HEADROOM,
    look_every_s: float = LOOK_EVERY_S,
) -> LoanSchedule:
    """What a cluster of so many machines lends when it is as busy as the curve says (Lyra §7.1).

    Every `look_every_s` from the curve's beginning on, it keeps what will be busy at the most until the next look and
    `headroom` of all its machines, each rounded up, and lends the rest. (Lyra predicts those five minutes; here they
    are known.) With `until_s` the curve is repeated until then: its last point lasts as long as the one before it.
    A step stands only where the number changes. Raises ValueError for an empty curve, or look_every_s not above 0.
    """
    if not curve or look_every_s <= 0:
        raise ValueError("loans need a curve with at least one point, and looks that are some time apart")
    first_s = curve[0].t_s
    last_span_s = curve[-1].t_s - curve[-2].t_s if len(curve) > 1 else look_every_s
    period_s = curve[-1].t_s + last_span_s - first_s
    end_s = first_s + period_s if until_s is None else until_s
    kept_for_bursts = math.ceil(headroom * machines - _ROUNDING)
    repeated = _repeated(curve, period_s)
    now_busy = next(repeated)
    following = next(repeated)
    steps: list[LoanStep] = []
    for look in range(max(1, math.ceil((end_s - first_s) / look_every_s - _ROUNDING))):
        t_s = first_s + look * look_every_s
        while following.t_s <= t_s:
            now_busy, following = following, next(repeated)
        busiest = now_busy.busy_fraction
        while following.t_s < min(t_s + look_every_s, end_s):
            now_busy, following = following, next(repeated)
            busiest = max(busiest, now_busy.busy_fraction)
        lent = max(0, machines - math.ceil(busiest * machines - _ROUNDING) - kept_for_bursts)
        if not steps or steps[-1].machines != lent:
            steps.append(LoanStep(t_s, cluster, lent))
    return LoanSchedule(tuple(steps))


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
