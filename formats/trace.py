"""Job traces as CSV: one workload per row, read as a stream; rows that make no sense are counted and shown.

The columns are those of docs/formats.md. The names that public traces use for the same things are understood
too (`job_id`, `virtual_cluster`, ...), and unknown columns are left out and listed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import TextIO, TypeVar

from domain.identifiers import ANY_GPU_MODEL, GpuModel, RegionId, TableId, TenantId, WorkloadId
from domain.priority_class import IMPORTANCE
from domain.scaling import ScalingPoint
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY
from formats.across_clusters_checks import ELASTIC_ACROSS_CLUSTERS
from formats.problems import FieldProblem, FormatError, in_quotes, suggestion
from formats.row_report import BadRow, RowReport
from formats.scaling_curves import curve_cell
from formats.text_stream import read_lines, write_text_stream
from formats.trace_cells import BadCell, name_cell, number_cell, positive_cell, whole_cell

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
    skew: float | None = None
    """Largest tensor of its model over the whole model (Tiresias §3.3)."""
    scaling: tuple[ScalingPoint, ...] = ()
    """Its measured speed by the number of its tasks (Lyra §8); empty: in proportion."""
    across_clusters: bool | None = None
    """Its tasks may be in several clusters of the region where no single one has room."""
    max_time_s: float | None = None
    """How long each of its attempts may run; then it fails."""
    priority_class: str = ""
    """Among the workloads of its tenant: low, normal or high; empty: normal."""


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
NO_NAMES: MappingProxyType[str, str] = MappingProxyType({})


class TraceReader:
    """The rows of a trace, once, in the order of the file. What was left out is known when they are all read.

    `names` says what the file calls a column, where that is not one of the usual names. Raises FormatError for a
    header that cannot be used, and with `strict` at the first bad row. A `row_report` that is given says where to count,
    and how strictly.
    """

    def __init__(
        self,
        lines: Iterable[str],
        source: str,
        *,
        strict: bool = False,
        default_tenant: TenantId | None = None,
        names: Mapping[str, str] = NO_NAMES,
        row_report: RowReport | None = None,
    ) -> None:
        self.source = source
        self.row_report = row_report if row_report is not None else RowReport(source, strict=strict)
        self._default_tenant = default_tenant
        self._names = names
        self._reader = csv.reader(lines, strict=True)
        self._header = self._read_header()
        self._places = self._find_columns()
        self._plain = self._plain_places()
        self.row_report.ignored_columns = self.ignored_columns

    @property
    def rows(self) -> int:
        """Good rows so far."""
        return self.row_report.rows

    @property
    def bad_rows(self) -> int:
        return self.row_report.bad_rows

    @property
    def shown_bad_rows(self) -> list[BadRow]:
        """The first of them."""
        return self.row_report.shown_bad_rows

    @property
    def ignored_columns(self) -> tuple[str, ...]:
        """Columns of the file that mean nothing here."""
        used = set(self._places.values())
        return tuple(name for index, name in enumerate(self._header) if index not in used)

    def __iter__(self) -> Iterator[TraceRow]:
        row_report = self.row_report
        while True:
            try:
                for cells in self._reader:
                    if cells:
                        row = self._parse(cells)
                        row_report.rows += 1
                        yield row
            except csv.Error as error:
                row_report.bad(self._reader.line_num, "the row", f"is not CSV: {error}")
            except BadCell as error:
                row_report.bad(self._reader.line_num, self._name_in_file(error.column), error.description)
            else:
                return

    def _name_in_file(self, column: str) -> str:
        place = self._places.get(column)
        return column if place is None else self._header[place]

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
            names = (self._names[column],) if column in self._names else (column, *OTHER_NAMES.get(column, ()))
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
        others = OTHER_NAMES.get(column) if column not in self._names else None
        also = f" (or {', '.join(others)})" if others else ""
        hint = " or name one tenant for all rows" if column == "tenant" else ""
        return f"has no column {self._names.get(column, column)}{also}; add it{hint}. Its columns: {', '.join(self._header[:30])}"

    def _plain_places(self) -> tuple[int, int, int, int, int] | None:
        """Where the required columns are, when there are no others: most traces have no more, and millions of rows."""
        if len(self._places) != len(REQUIRED_COLUMNS) or "tenant" not in self._places:
            return None
        places = self._places
        return places["workload_id"], places["tenant"], places["submit_s"], places["duration_s"], places["gpus"]

    def _parse(self, cells: list[str]) -> TraceRow:
        if len(cells) != len(self._header):
            problem = f"has {len(cells)} cells, but the header has {len(self._header)}"
            raise BadCell("the row", problem)
        if self._plain is not None:
            row = _plain_row(cells, self._plain)
        else:
            values = {column: cells[place].strip() for column, place in self._places.items()}
            row = _parse_row(values, self._default_tenant)
        self.row_report.claim("workload_id", row.workload_id)
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


_FLAGS: MappingProxyType[str, bool] = MappingProxyType(
    {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
)
Value = TypeVar("Value")


def _plain_row(cells: Sequence[str], places: tuple[int, int, int, int, int]) -> TraceRow:
    """A row of which nothing but the required columns is known."""
    name, tenant, submit_s, duration_s, gpus = places
    tenant_cell = cells[tenant].strip()
    if not tenant_cell:
        raise BadCell("tenant", "is empty; every row names its tenant")
    row = TraceRow(
        WorkloadId(name_cell("workload_id", cells[name].strip())),
        TenantId(name_cell("tenant", tenant_cell)),
        number_cell("submit_s", cells[submit_s].strip()),
        positive_cell("duration_s", cells[duration_s].strip()),
        whole_cell("gpus", cells[gpus].strip(), 0, GREATEST_GPUS),
    )
    if row.gpus == 0:
        check_row(row)
    return row


def _parse_row(values: Mapping[str, str], default_tenant: TenantId | None) -> TraceRow:
    def optional(column: str, parse: Callable[[str, str], Value]) -> Value | None:
        cell = values.get(column, "")
        return parse(column, cell) if cell else None

    tenant = optional("tenant", name_cell) if "tenant" in values else default_tenant
    if tenant is None:
        raise BadCell("tenant", "is empty; every row names its tenant")
    row = TraceRow(
        workload_id=WorkloadId(name_cell("workload_id", values["workload_id"])),
        tenant=TenantId(tenant),
        submit_s=number_cell("submit_s", values["submit_s"]),
        duration_s=positive_cell("duration_s", values["duration_s"]),
        gpus=whole_cell("gpus", values["gpus"], 0, GREATEST_GPUS),
        gpu_model=GpuModel(optional("gpu_model", name_cell) or ANY_GPU_MODEL),
        tasks=optional("tasks", _tasks),
        cpus=optional("cpus", number_cell),
        memory_gib=optional("memory_gib", number_cell),
        priority=optional("priority", _priority),
        model=values.get("model", "")[:256],
        min_tasks=optional("min_tasks", _tasks),
        max_tasks=optional("max_tasks", _tasks),
        tables=optional("tables", _tables) or (),
        fungible=optional("fungible", _flag),
        checkpoint_s=optional("checkpoint_s", number_cell),
        region=RegionId(region) if (region := optional("region", name_cell)) is not None else None,
        skew=optional("skew", _skew),
        scaling=optional("scaling", curve_cell) or (),
        across_clusters=optional("across_clusters", _flag),
        max_time_s=optional("max_time_s", positive_cell),
        priority_class=optional("priority_class", _class) or "",
    )
    check_row(row)
    return row


def check_row(row: TraceRow) -> None:
    """What must hold between the cells of a row; raises BadCell."""
    if row.gpus == 0:
        for column, amount in (("cpus", row.cpus), ("memory_gib", row.memory_gib)):
            if not amount:
                raise BadCell(column, "is empty or 0; a workload without GPUs must say how much it needs")
    if row.tasks is None:
        if row.min_tasks is not None or row.max_tasks is not None:
            raise BadCell("tasks", "is empty; an elastic workload (min_tasks, max_tasks) must say how many it asks for")
        return
    if row.gpus % row.tasks:
        raise BadCell("tasks", f"is {row.tasks}, by which the {row.gpus} GPUs cannot be divided evenly")
    if row.min_tasks is not None and row.min_tasks > row.tasks:
        raise BadCell("min_tasks", f"is {row.min_tasks}, more than the {row.tasks} tasks asked for")
    if row.across_clusters and (row.max_tasks or row.tasks) > (row.min_tasks or row.tasks):
        raise BadCell("across_clusters", ELASTIC_ACROSS_CLUSTERS)
    if row.scaling and (row.max_tasks or row.tasks) <= (row.min_tasks or row.tasks):
        raise BadCell(
            "scaling", "says how fast it is with more tasks, but it has no more; give max_tasks, or leave it out"
        )
    if row.max_tasks is not None and row.max_tasks < row.tasks:
        raise BadCell("max_tasks", f"is {row.max_tasks}, less than the {row.tasks} tasks asked for")


def _tasks(column: str, cell: str) -> int:
    return whole_cell(column, cell, 1, GREATEST_TASKS)


def _skew(column: str, cell: str) -> float:
    skew = number_cell(column, cell)
    if skew > 1:
        raise BadCell(column, f"must be a number from 0 to 1, not {in_quotes(cell)}")
    return skew


def _priority(column: str, cell: str) -> int:
    return whole_cell(column, cell, HIGHEST_PRIORITY, LOWEST_PRIORITY)


def _tables(column: str, cell: str) -> tuple[TableId, ...]:
    names = [name_cell(column, name.strip()) for name in cell.split(TABLE_SEPARATOR) if name.strip()]
    return tuple(TableId(name) for name in dict.fromkeys(names))


def _flag(column: str, cell: str) -> bool:
    value = _FLAGS.get(cell.lower())
    if value is None:
        raise BadCell(column, f"must be true or false, not {in_quotes(cell)}; {suggestion(cell, _FLAGS, 'flag')}")
    return value


def _class(column: str, cell: str) -> str:
    if cell not in IMPORTANCE:
        raise BadCell(column, f"must be one of {', '.join(IMPORTANCE)}, not {in_quotes(cell)}")
    return cell


def _item(value: object) -> str:
    if isinstance(value, ScalingPoint):
        return f"{value.tasks}:{value.throughput!r}"
    return str(value)


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return TABLE_SEPARATOR.join(_item(item) for item in value)
    return str(value)
