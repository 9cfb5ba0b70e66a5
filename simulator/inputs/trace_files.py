"""Opening a trace of any known format: which it is, its rows as a stream, or all of them in order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from domain.identifiers import TenantId
from formats.problems import FieldProblem, FormatError
from formats.row_report import RowReport
from formats.text_stream import read_lines
from formats.trace import TraceRow
from simulator.inputs.importers.alibaba_v2020 import AlibabaV2020, read_job_table
from simulator.inputs.importers.importer import FileHead, Importer, RenamedTrace
from simulator.inputs.importers.registry import importer_for, importer_named

HEAD_LINES = 40
"""By so many lines a format is recognised: comments and indented JSON come first."""
HEAD_CHARACTERS = 4096
"""Of a line, at most: a JSON file may be one."""
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How a trace file is to be read."""

    format: str | None = None
    """An importer's name. None: recognised by the first lines."""
    strict: bool = False
    """The first bad row raises FormatError."""
    default_tenant: TenantId | None = None
    """Whose the rows are, where a generic trace does not say."""
    gpus_only: bool = False
    """What GPU workloads ask for besides is left out (`with_gpus_only`)."""
    job_table: Path | None = None
    """Alibaba's `pai_job_table.csv`, beside its task table."""


READ_ALL = TraceOptions()


@dataclass(frozen=True, slots=True)
class Trace:
    """The workloads of a file, by (submit_s, workload_id)."""

    rows: tuple[TraceRow, ...]
    format: str
    row_report: RowReport
    """What became of the file's rows."""
    clock_zero_s: float = 0.0
    """Seconds since the epoch that are 0 on the trace's clock, where the file has dates; else 0."""


class TraceStream:
    """The rows of a file, once, in its order and with its own times; `row_report` is complete when all are read.

    Raises FormatError when the file cannot be read, is of no known format, or is bad where `strict` asks.
    """

    def __init__(self, path: Path, options: TraceOptions = READ_ALL) -> None:
        numbered = read_lines(path)
        first = [line for _, line in islice(numbered, HEAD_LINES)]
        head = FileHead(tuple(line[:HEAD_CHARACTERS].rstrip("\r\n") for line in first))
        self.source = str(path)
        self.row_report = RowReport(self.source, strict=options.strict)
        self.importer = _prepared(_importer(head, self.source, options), options)
        self._rows = self.importer.rows(chain(first, (line for _, line in numbered)), self.row_report)
        self._gpus_only = options.gpus_only

    def __iter__(self) -> Iterator[TraceRow]:
        if not self._gpus_only:
            return self._rows
        return (with_gpus_only(row) for row in self._rows)


def read_trace_file(path: Path, options: TraceOptions = READ_ALL) -> Trace:
    """All workloads of a file, in order.

    Where the file has dates, the clock begins at midnight (UTC) before the first submission, so that the time of day
    survives. Raises FormatError as TraceStream does, and when there is not a single good row.
    """
    stream = TraceStream(path, options)
    rows = sorted(stream, key=submission_order)
    if not rows:
        raise FormatError(stream.source, [FieldProblem("", _nothing(stream.row_report))])
    zero_s = rows[0].submit_s // DAY_S * DAY_S if stream.importer.epoch else 0.0
    if zero_s:
        rows = [replace(row, submit_s=row.submit_s - zero_s) for row in rows]
    return Trace(tuple(rows), stream.importer.name, stream.row_report, zero_s)


def submission_order(row: TraceRow) -> tuple[float, str]:
    """The order of the rows of a trace."""
    return row.submit_s, row.workload_id


def with_gpus_only(row: TraceRow) -> TraceRow:
    """A GPU workload with the proportional share of CPUs and memory, in as few tasks as fit the machines.

    So it runs on machines that are leaner or smaller than those of its log. Elastic workloads keep their tasks,
    workloads without GPUs keep everything.
    """
    if row.gpus == 0 or (row.cpus is None and row.memory_gib is None and row.tasks is None):
        return row
    elastic = row.min_tasks is not None or row.max_tasks is not None
    return replace(row, cpus=None, memory_gib=None, tasks=row.tasks if elastic else None)


def _importer(head: FileHead, source: str, options: TraceOptions) -> Importer:
    if not head.lines:
        raise FormatError(source, [FieldProblem("", "is empty; a trace has at least a header and a row")])
    return importer_named(options.format) if options.format is not None else importer_for(head, source)


def _prepared(importer: Importer, options: TraceOptions) -> Importer:
    """The importer with what else was given for it."""
    if options.default_tenant is not None and isinstance(importer, RenamedTrace):
        importer = replace(importer, default_tenant=options.default_tenant)
    if options.job_table is None:
        return importer
    if not isinstance(importer, AlibabaV2020):
        description = f"goes with pai_task_table.csv only; the trace is of the format {importer.name}"
        raise FormatError(str(options.job_table), [FieldProblem("", description)])
    row_report = RowReport(str(options.job_table), strict=options.strict)
    lines = (line for _, line in read_lines(options.job_table))
    return replace(importer, jobs=read_job_table(lines, row_report))


def _nothing(row_report: RowReport) -> str:
    reasons = [f"{count} {reason}" for reason, count in row_report.left_out.items()]
    if row_report.bad_rows:
        reasons.insert(0, f"{row_report.bad_rows} rows are bad, the first one: {row_report.shown_bad_rows[0]}")
    return f"has no workload to run ({'; '.join(reasons) or 'there are no rows'})"
