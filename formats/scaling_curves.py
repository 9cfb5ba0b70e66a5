"""Curves of speed over tasks, as workloads declare them and traces carry them (Lyra §8): what must hold of one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from pydantic_core import PydanticCustomError

from domain.scaling import ScalingPoint
from formats.problems import FieldProblem, in_quotes
from formats.trace_cells import BadCell

GREATEST_POINTS = 1_000
GREATEST_TASKS = 100_000
LINEAR = "linear"
POINT_SEPARATOR = ";"
_is_digit = re.compile("[0-9]+", re.ASCII).fullmatch
_is_point = re.compile(r"([0-9]{1,6}):((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)", re.ASCII).fullmatch
_REMEDY = f"give the speed by tasks, such as {{1: 1.0, 2: 1.9, 4: 3.4}}, or leave it out for {LINEAR}"

NOT_ELASTIC = (
    "says how fast the job is with more tasks, but it never has more; set max_tasks above tasks, or leave scaling out"
)


def check_curve(points: Sequence[ScalingPoint], path: str) -> list[FieldProblem]:
    """The first problem of the curve of a job, if there is any."""
    if len(points) > GREATEST_POINTS:
        return [FieldProblem(path, f"has {len(points):,} points; keep {GREATEST_POINTS:,} at most")]
    before: ScalingPoint | None = None
    for point in points:
        found = _problem(point, before)
        if found is not None:
            return [FieldProblem(f"{path}[{point.tasks}]", found)]
        before = point
    return []


def _problem(point: ScalingPoint, before: ScalingPoint | None) -> str | None:
    tasks, speed = point
    if not 1 <= tasks <= GREATEST_TASKS:
        return f"is no number of tasks from 1 to {GREATEST_TASKS:,}; {_REMEDY}"
    if not (math.isfinite(speed) and speed > 0.0):
        return f"must be a positive number, not {speed}"
    if before is None:
        if point != (1, 1.0):
            return f"comes first; speeds are relative to one task, so begin with 1: 1.0 ({_REMEDY})"
        return None
    if tasks <= before.tasks:
        return f"comes after {before.tasks}; sort the points by tasks, each once"
    if speed < before.throughput:
        return (
            f"is {speed:g}, less than the {before.throughput:g} with {before.tasks} tasks; more tasks are never slower"
        )
    if speed * before.tasks > before.throughput * tasks * (1.0 + 1e-9):
        ideal = before.throughput * tasks / before.tasks
        return (
            f"is {speed:g}, more than the {ideal:g} in proportion to {before.tasks} tasks; a task more never makes the"
            " others faster: measure again"
        )
    return None


def curve_of_mapping(value: object) -> object:
    """What a file says, for a schema: `linear` is no curve, and in JSON and in quotes the number of tasks is text."""
    if value == LINEAR:
        return None
    if isinstance(value, dict):
        if not value:
            raise PydanticCustomError("scaling", "is empty; {remedy}", {"remedy": _REMEDY})
        return {int(key) if isinstance(key, str) and _is_digit(key) else key: speed for key, speed in value.items()}
    if value is not None:
        raise PydanticCustomError("scaling", "is no curve; {remedy}", {"remedy": _REMEDY})
    return value


def curve_cell(column: str, cell: str) -> tuple[ScalingPoint, ...]:
    """`1:1;2:1.9;4:3.4` or `linear`, as the cell of a trace; raises BadCell."""
    if cell == LINEAR:
        return ()
    points: list[ScalingPoint] = []
    for part in cell.split(POINT_SEPARATOR):
        found = _is_point(part.strip())
        if found is None:
            raise BadCell(column, f"must be {LINEAR}, or points such as 1:1;2:1.9;4:3.4, not {in_quotes(cell)}")
        points.append(ScalingPoint(int(found[1]), float(found[2])))
    for problem in check_curve(points, column):
        raise BadCell(column, f"at {problem.field.removeprefix(column)} {problem.description}")
    return tuple(points)
