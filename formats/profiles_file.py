"""Sensitivity profiles (Synergy §3.1): a CSV file with a line for each model and amount of CPUs and memory per GPU.

Columns `model`, `cpus_per_gpu`, `memory_gb_per_gpu` (in GiB, as the memory of machines is) and `relative_speed`, in any
order; others are passed over. The file may be packed with gzip. Speeds of one model are comparable with one another
only, so that it does not matter which amounts have speed 1.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from domain.sensitivity import AmountsPerGpu, Cell, SensitivityProfile, decreases
from formats.problems import FieldProblem, FormatError, in_quotes, suggestion
from formats.text_stream import read_lines, write_text_stream
from formats.trace_cells import BadCell, name_cell, positive_cell

if TYPE_CHECKING:
    from _csv import Reader as CsvReader

COLUMNS = ("model", "cpus_per_gpu", "memory_gb_per_gpu", "relative_speed")


class _Point(NamedTuple):
    """What a line says."""

    line: int
    speed: float


def read_profiles(path: Path) -> dict[str, SensitivityProfile]:
    """The profiles by model, sorted; there is at least one.

    Raises FormatError with all problems: a column that is missing, a cell that is none, a point that is there twice or
    is missing from the grid, a speed that decreases, a file without any profile.
    """
    source = str(path)
    rows = csv.reader((line for _, line in read_lines(path)), strict=True)
    try:
        return _profiles_in(rows, source)
    except csv.Error as error:
        raise FormatError(source, [FieldProblem(f"line {rows.line_num}", f"is not CSV: {error}")]) from error


def _profiles_in(rows: CsvReader, source: str) -> dict[str, SensitivityProfile]:
    header = [name.strip() for name in next(rows, [])]
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        described = f"has no column {', '.join(missing)}; the first line must name {', '.join(COLUMNS)}"
        raise FormatError(source, [FieldProblem("line 1", described)])
    places = [header.index(name) for name in COLUMNS]
    problems: list[FieldProblem] = []
    models = _points_of_models(rows, places, problems)
    if not models and not problems:
        problems.append(FieldProblem("", "has no profiles; give each model at least one line"))
    profiles: dict[str, SensitivityProfile] = {}
    for model in sorted(models):
        found = _problems_of(model, models[model])
        problems += found
        if not found:
            profiles[model] = _profile_of(models[model])
    if problems:
        raise FormatError(source, problems)
    return profiles


def _points_of_models(
    rows: CsvReader, places: Sequence[int], problems: list[FieldProblem]
) -> dict[str, dict[AmountsPerGpu, _Point]]:
    """The points of each model; adds what is wrong with lines to the problems."""
    models: dict[str, dict[AmountsPerGpu, _Point]] = {}
    for row in rows:
        if not row:
            continue
        cells = [row[place].strip() if place < len(row) else "" for place in places]
        try:
            model = name_cell(COLUMNS[0], cells[0])
            cpus, memory_gib, speed = (
                positive_cell(name, cell) for name, cell in zip(COLUMNS[1:], cells[1:], strict=True)
            )
        except BadCell as error:
            problems.append(FieldProblem(f"line {rows.line_num}, {error.column}", error.description))
            continue
        points = models.setdefault(model, {})
        amounts = AmountsPerGpu(cpus, memory_gib)
        earlier = points.setdefault(amounts, _Point(rows.line_num, speed))
        if earlier.line != rows.line_num:
            described = f"{_described(amounts)} stands on line {earlier.line} already; give each point once"
            problems.append(FieldProblem(f"line {rows.line_num}, model {model}", described))
    return models


def write_profiles(path: Path, profiles: Mapping[str, SensitivityProfile]) -> None:
    """Writes what `read_profiles` reads back unchanged, models in alphabetical order."""
    with write_text_stream(path) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for model, profile in sorted(profiles.items()):
            for row, cpus in enumerate(profile.cpus_per_gpu):
                for column, memory_gib in enumerate(profile.memory_gib_per_gpu):
                    speed = profile.throughput[row][column]
                    writer.writerow([model, _written(cpus), _written(memory_gib), _written(speed)])


def unknown_model(model: str, known: Collection[str]) -> str:
    """What is said of a job whose model has no profile, with what was probably meant."""
    return f"{in_quotes(model)} has no sensitivity profile; {suggestion(model, known, 'profile')}"


def _axes(points: Mapping[AmountsPerGpu, _Point]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return (
        tuple(sorted({amounts.cpus for amounts in points})),
        tuple(sorted({amounts.memory_gib for amounts in points})),
    )


def _grid(points: Mapping[AmountsPerGpu, _Point]) -> list[list[_Point]]:
    cpus_axis, memory_axis = _axes(points)
    return [[points[AmountsPerGpu(cpus, memory_gib)] for memory_gib in memory_axis] for cpus in cpus_axis]


def _problems_of(model: str, points: Mapping[AmountsPerGpu, _Point]) -> list[FieldProblem]:
    """What is wrong with the grid of a model: points that are missing, else speeds that decrease."""
    cpus_axis, memory_axis = _axes(points)
    grid = [AmountsPerGpu(cpus, memory_gib) for cpus in cpus_axis for memory_gib in memory_axis]
    absent = [
        FieldProblem(
            f"model {model}",
            f"has no line for {_described(amounts)}; give one for every amount of CPUs with every amount of memory",
        )
        for amounts in grid
        if amounts not in points
    ]
    if absent:
        return absent
    lines = _grid(points)

    def point(cell: Cell) -> _Point:
        return lines[cell.cpus][cell.memory]

    return [
        FieldProblem(
            f"line {point(more).line}, model {model}",
            f"has speed {_written(point(more).speed)}, less than {_written(point(fewer).speed)} on line {point(fewer).line}"
            " with fewer resources; more CPUs or memory never make a job slower: measure again, or give the larger speed",
        )
        for fewer, more in decreases([[each.speed for each in row] for row in lines])
    ]


def _profile_of(points: Mapping[AmountsPerGpu, _Point]) -> SensitivityProfile:
    cpus_axis, memory_axis = _axes(points)
    speeds = tuple(tuple(point.speed for point in row) for row in _grid(points))
    return SensitivityProfile(cpus_axis, memory_axis, speeds)


def _described(amounts: AmountsPerGpu) -> str:
    return f"{_written(amounts.cpus)} CPUs and {_written(amounts.memory_gib)} GB per GPU"


def _written(value: float) -> str:
    return repr(value).removesuffix(".0")
