"""Job traces as CSV: one workload per row, read as a stream; rows that make no sense are counted and shown.

The columns are those of docs/formats.md. The names that public traces use for the same things are understood
too (`job_id`, `virtual_cluster`, ...), and columns that nobody knows are left out and listed.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TextIO, TypeVar

from domain.identifiers import ANY_GPU_MODEL, IDENTIFIER_PATTERN, GpuModel, RegionId, TableId, TenantId, WorkloadId
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from formats.problems import FieldProblem, FormatError, in_quotes, suggestion
from formats.text_stream import read_lines, write_text_stream

SHOWN_BAD_ROWS = 20
GREATEST_TIME_S = 1e12
GREATEST_GPUS = 1_000_000
GREATEST_TASKS = 100_000
TABLE_SEPARATOR = ";"


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One workload of a trace, in the order of the columns. None: the trace does not say."""

    workload_id: WorkloadId
    tenant: TenantId
    submit_s: float
    """On the trace's own clock."""
    duration_s: float
    """Run time with the proportional share on the asked GPUs."""
    gpus: int
    """Of all tasks together, as are `cpus` and `memory_gib`."""
    gpu_model: GpuModel = ANY_GPU_MODEL
    tasks: int | None = None
    cpus: float | None = None
    memory_gib: float | None = None
    priority: int | None = None
    model: str = ""
    """What is trained."""
    min_tasks: int | None = None
    max_tasks: int | None = None
    tables: tuple[TableId, ...] = ()
    fungible: bool | None = None
    """It may also run on the GPUs of loaned inference servers (Lyra §2)."""
    checkpoint_s: float | None = None
    """Seconds of work between two checkpoints."""
    region: RegionId | None = None


COLUMNS = tuple(field.name for field in fields(TraceRow))
REQUIRED_COLUMNS = COLUMNS[:5]
OTHER_NAMES: MappingProxyType[str, tuple[str, ...]] = MappingProxyType(
    {
        "workload_id": ("job_id", "task_id"),
        "tenant": ("virtual_cluster", "vc", "cluster", "job_class"),
        "tasks": ("nodes",),
        "model": ("job_type",),
    }
)
"""What public traces call a column; the first that is there counts."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was left out: where, and why."""

    line: int
    column: str
    description: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.description}"


class TraceReader:
    """The rows of a trace, once, in the order of the file. What was left out is known when they are all read.

    Raises FormatError for a header that cannot be used, and with `strict` at the first bad row.
    """

    def __init__(
        self, lines: Iterable[str], source: str, *, strict: bool = False, default_tenant: TenantId | None = None
    ) -> None:
        self.source = source
        self.rows = 0
        """Good rows so far."""
        self.bad_rows = 0
        self.shown_bad_rows: list[BadRow] = []
        """The first of them."""
        self._strict = strict
        self._default_tenant = default_tenant
        self._reader = csv.reader(lines, strict=True)
        self._header = self._read_header()
        self._places = self._find_columns()
        self._seen: set[str] = set()

    @property
    def ignored_columns(self) -> tuple[str, ...]:
        """Columns of the file that mean nothing here."""
        used = set(self._places.values())
        return tuple(name for index, name in enumerate(self._header) if index not in used)

    def __iter__(self) -> Iterator[TraceRow]:
        while True:
            try:
                cells = next(self._reader)
                if cells:
                    row = self._parse(cells)
                    self.rows += 1
                    yield row
            except StopIteration:
                return
            except csv.Error as error:
                self._leave_out("the row", f"is not CSV: {error}")
            except _BadCell as error:
                self._leave_out(error.column, error.description)

    def _leave_out(self, column: str, description: str) -> None:
        bad = BadRow(self._reader.line_num, column, description)
        if self._strict:
            problem = FieldProblem(f"line {bad.line}, column {column}", description)
            raise FormatError(self.source, [problem])
        self.bad_rows += 1
        if len(self.shown_bad_rows) < SHOWN_BAD_ROWS:
            self.shown_bad_rows.append(bad)

    def _read_header(self) -> list[str]:
        try:
            header = [name.strip() for name in next(self._reader, [])]
        except csv.Error as error:
            raise FormatError(self.source, [FieldProblem("line 1", f"is not CSV: {error}")]) from error
        if not header:
            expected = ",".join(REQUIRED_COLUMNS)
            raise FormatError(self.source, [FieldProblem("line 1", f"is empty; a header is expected: {expected},...")])
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice:
            raise FormatError(self.source, [FieldProblem("line 1", f"has the column {twice[0]} twice; rename one")])
        return header

    def _find_columns(self) -> dict[str, int]:
        places: dict[str, int] = {}
        for column in COLUMNS:
            names = (column, *OTHER_NAMES.get(column, ()))
            found = next((name for name in names if name in self._header), None)
            if found is not None:
                places[column] = self._header.index(found)
        missing = [column for column in REQUIRED_COLUMNS if column not in places]
        if self._default_tenant is not None and "tenant" in missing:
            missing.remove("tenant")
        if missing:
            problems = [FieldProblem("line 1", self._missing(column)) for column in missing]
            raise FormatError(self.source, problems)
        return places

    def _missing(self, column: str) -> str:
        others = OTHER_NAMES.get(column)
        also = f" (or {', '.join(others)})" if others else ""
        hint = " or name one tenant for all rows" if column == "tenant" else ""
        return f"has no column {column}{also}; add it{hint}. Its columns: {', '.join(self._header[:30])}"

    def _parse(self, cells: list[str]) -> TraceRow:
        if len(cells) != len(self._header):
            problem = f"has {len(cells)} cells, but the header has {len(self._header)}"
            raise _BadCell("the row", problem)
        values = {column: cells[place].strip() for column, place in self._places.items()}
        row = _parse_row(values, self._default_tenant)
        if row.workload_id in self._seen:
            raise _BadCell("workload_id", f"{row.workload_id} is the id of an earlier row; ids are unique")
        self._seen.add(row.workload_id)
        return row


def read_trace(path: Path, *, strict: bool = False, default_tenant: TenantId | None = None) -> TraceReader:
    """The rows of a trace file, packed or not; `default_tenant` serves a trace without a tenant column."""
    lines = (line for _, line in read_lines(path))
    return TraceReader(lines, str(path), strict=strict, default_tenant=default_tenant)


def write_trace(path: Path, rows: Iterable[TraceRow]) -> int:
    """Writes a trace with every column to a new file, packed when its name ends in `.gz`; how many rows."""
    with write_text_stream(path) as stream:
        return write_trace_rows(stream, rows)


def write_trace_rows(stream: TextIO, rows: Iterable[TraceRow]) -> int:
    """Writes header and rows to a stream; `TraceReader` gives the same rows back."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    count = 0
    for row in rows:
        writer.writerow([_cell(getattr(row, column)) for column in COLUMNS])
        count += 1
    return count


class _BadCell(Exception):
    """Why a row is left out."""

    def __init__(self, column: str, description: str) -> None:
        self.column = column
        self.description = description
        super().__init__(f"{column}: {description}")


_is_name = re.compile(IDENTIFIER_PATTERN).fullmatch
_is_whole = re.compile(r"\+?[0-9]{1,18}(?:\.0*)?", re.ASCII).fullmatch
_is_number = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII).fullmatch
_FLAGS: MappingProxyType[str, bool] = MappingProxyType(
    {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
)
Value = TypeVar("Value")


def _parse_row(values: Mapping[str, str], default_tenant: TenantId | None) -> TraceRow:
    def optional(column: str, parse: Callable[[str, str], Value]) -> Value | None:
        cell = values.get(column, "")
        return parse(column, cell) if cell else None

    tenant = optional("tenant", _name) if "tenant" in values else default_tenant
    if tenant is None:
        raise _BadCell("tenant", "is empty; every row names its tenant")
    row = TraceRow(
        workload_id=WorkloadId(_name("workload_id", values["workload_id"])),
        tenant=TenantId(tenant),
        submit_s=_number("submit_s", values["submit_s"]),
        duration_s=_positive("duration_s", values["duration_s"]),
        gpus=_whole("gpus", values["gpus"], 0, GREATEST_GPUS),
        gpu_model=GpuModel(optional("gpu_model", _name) or ANY_GPU_MODEL),
        tasks=optional("tasks", _tasks),
        cpus=optional("cpus", _number),
        memory_gib=optional("memory_gib", _number),
        priority=optional("priority", _priority),
        model=values.get("model", "")[:256],
        min_tasks=optional("min_tasks", _tasks),
        max_tasks=optional("max_tasks", _tasks),
        tables=optional("tables", _tables) or (),
        fungible=optional("fungible", _flag),
        checkpoint_s=optional("checkpoint_s", _number),
        region=RegionId(region) if (region := optional("region", _name)) is not None else None,
    )
    _check_row(row)
    return row


def _check_row(row: TraceRow) -> None:
    """What must hold between the cells of a row."""
    if row.gpus == 0:
        for column, amount in (("cpus", row.cpus), ("memory_gib", row.memory_gib)):
            if not amount:
                raise _BadCell(column, "is empty or 0; a workload without GPUs must say how much it needs")
    if row.tasks is None:
        if row.min_tasks is not None or row.max_tasks is not None:
            raise _BadCell(
                "tasks", "is empty; an elastic workload (min_tasks, max_tasks) must say how many it asks for"
            )
        return
    if row.gpus % row.tasks:
        raise _BadCell("tasks", f"is {row.tasks}, by which the {row.gpus} GPUs cannot be divided evenly")
    if row.min_tasks is not None and row.min_tasks > row.tasks:
        raise _BadCell("min_tasks", f"is {row.min_tasks}, more than the {row.tasks} tasks asked for")
    if row.max_tasks is not None and row.max_tasks < row.tasks:
        raise _BadCell("max_tasks", f"is {row.max_tasks}, less than the {row.tasks} tasks asked for")


def _name(column: str, cell: str) -> str:
    if not _is_name(cell):
        rule = "must be a name (1 to 128 letters, digits or . _ : / -, beginning with a letter or digit)"
        raise _BadCell(column, f"{rule}, not {in_quotes(cell)}")
    return cell


def _number(column: str, cell: str) -> float:
    value = float(cell) if _is_number(cell) else math.nan
    if not 0 <= value <= GREATEST_TIME_S:
        raise _BadCell(column, f"must be a number from 0 to {GREATEST_TIME_S:g}, not {in_quotes(cell)}")
    return value


def _positive(column: str, cell: str) -> float:
    value = _number(column, cell)
    if value == 0:
        raise _BadCell(column, "must be more than 0")
    return value


def _whole(column: str, cell: str, least: int, greatest: int) -> int:
    value = int(float(cell)) if "." in cell and _is_whole(cell) else int(cell) if _is_whole(cell) else -1
    if not least <= value <= greatest:
        raise _BadCell(column, f"must be a whole number from {least} to {greatest}, not {in_quotes(cell)}")
    return value


def _tasks(column: str, cell: str) -> int:
    return _whole(column, cell, 1, GREATEST_TASKS)


def _priority(column: str, cell: str) -> int:
    return _whole(column, cell, HIGHEST_PRIORITY, LOWEST_PRIORITY)


def _tables(column: str, cell: str) -> tuple[TableId, ...]:
    names = [_name(column, name.strip()) for name in cell.split(TABLE_SEPARATOR) if name.strip()]
    return tuple(TableId(name) for name in dict.fromkeys(names))


def _flag(column: str, cell: str) -> bool:
    value = _FLAGS.get(cell.lower())
    if value is None:
        raise _BadCell(column, f"must be true or false, not {in_quotes(cell)}; {suggestion(cell, _FLAGS, 'flag')}")
    return value


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return TABLE_SEPARATOR.join(str(item) for item in value)
    return str(value)
