"""Alibaba's GPU trace v2020 (PAI; Weng et al., NSDI 2022): `pai_task_table.csv`, with `pai_job_table.csv` beside it.

Neither has a header line. A task with GPUs is a workload of `inst_num` tasks, each with `plan_gpu` hundredths of a GPU
(a share becomes a whole one); the CPU roles of a job are left out. The job table, if it is given, names the user, who
is the tenant, and when the job was submitted; without it a task is submitted when it starts, and all are `pai`'s.
The GPU type of the table is what a task was given, not what it asked for, so any will do here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from domain.identifiers import TenantId, WorkloadId
from formats.problems import FieldProblem, FormatError
from formats.row_report import RowReport
from formats.trace import GREATEST_GPUS, GREATEST_TASKS, TraceRow
from formats.trace_cells import BadCell, name_cell, number_cell, whole_cell
from simulator.inputs.importers.accepting import LeftOut
from simulator.inputs.importers.cells import NEVER, gpus_of_share, positive_duration, tenant_cell
from simulator.inputs.importers.importer import FileHead
from simulator.inputs.importers.table_importer import TableImporter

TASK_COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_STATES = frozenset({"Running", "Terminated", "Failed", "Waiting"})


class PaiJob(NamedTuple):
    """What the job table says of a job."""

    user: str
    submit_s: float | None


NO_JOBS: Mapping[str, PaiJob] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class AlibabaV2020:
    """`jobs`, by name, are those of the job table; empty when it was not given."""

    name: str = "alibaba-v2020"
    title: str = "Alibaba's GPU trace v2020, pai_task_table"
    epoch: bool = False
    jobs: Mapping[str, PaiJob] = field(default_factory=lambda: NO_JOBS, repr=False, compare=False)

    def recognises(self, head: FileHead) -> bool:
        cells = head.cells()
        return cells == TASK_COLUMNS or (len(cells) == len(TASK_COLUMNS) and cells[3] in _STATES)

    def rows(self, lines: Iterable[str], row_report: RowReport) -> Iterator[TraceRow]:
        table = TableImporter(
            self.name, self.title, columns=TASK_COLUMNS, convert=self._row, header=TASK_COLUMNS, epoch=self.epoch
        )
        return table.rows(lines, row_report)

    def _row(self, cells: Mapping[str, str], row_report: RowReport) -> TraceRow:
        if cells["plan_gpu"] in NEVER or number_cell("plan_gpu", cells["plan_gpu"]) == 0:
            raise LeftOut("use no GPU")
        if cells["start_time"] in NEVER:
            raise LeftOut("never started")
        if cells["end_time"] in NEVER:
            raise LeftOut("had not ended when the log was written")
        start_s = number_cell("start_time", cells["start_time"])
        end_s = number_cell("end_time", cells["end_time"])
        tasks = whole_cell("inst_num", cells["inst_num"], 1, GREATEST_TASKS)
        gpus = tasks * gpus_of_share("plan_gpu", cells["plan_gpu"], 100.0, row_report)
        if gpus > GREATEST_GPUS:
            raise BadCell("inst_num", f"comes to {gpus} GPUs; at most {GREATEST_GPUS} are possible")
        job = self.jobs.get(cells["job_name"])
        return TraceRow(
            workload_id=WorkloadId(name_cell("job_name", f"{cells['job_name']}/{cells['task_name']}")),
            tenant=TenantId(job.user if job is not None else "pai"),
            submit_s=start_s if job is None or job.submit_s is None else min(job.submit_s, start_s),
            duration_s=positive_duration(end_s - start_s, "end_time", "is before start_time"),
            gpus=gpus,
            tasks=tasks,
            cpus=_each("plan_cpu", cells["plan_cpu"], tasks, 100.0),
            memory_gib=_each("plan_mem", cells["plan_mem"], tasks, 1.0),
            model=cells["task_name"][:256],
        )


@dataclass(frozen=True, slots=True)
class AlibabaV2020Jobs:
    """The job table alone: it is recognised, so that it can be said what is missing."""

    name: str = "alibaba-v2020-jobs"
    title: str = "Alibaba's GPU trace v2020, pai_job_table (goes with pai_task_table)"
    epoch: bool = False

    def recognises(self, head: FileHead) -> bool:
        cells = head.cells()
        return cells == JOB_COLUMNS or (len(cells) == len(JOB_COLUMNS) and cells[3] in _STATES)

    def rows(self, lines: Iterable[str], row_report: RowReport) -> Iterator[TraceRow]:
        description = "does not say how many GPUs a job has; read pai_task_table.csv, and name this file with --jobs"
        raise FormatError(row_report.source, [FieldProblem("", description)])


def read_job_table(lines: Iterable[str], row_report: RowReport) -> dict[str, PaiJob]:
    """User and submission time of each job of `pai_job_table.csv`; bad rows are counted."""
    jobs: dict[str, PaiJob] = {}
    reader = csv.reader(lines)
    for cells in reader:
        if not cells or tuple(cells) == JOB_COLUMNS:
            continue
        try:
            name, job = _job(cells)
        except BadCell as error:
            row_report.bad(reader.line_num, error.column, error.description)
        else:
            jobs[name] = job
            row_report.rows += 1
    return jobs


def _job(cells: Sequence[str]) -> tuple[str, PaiJob]:
    if len(cells) != len(JOB_COLUMNS):
        raise BadCell("the row", f"has {len(cells)} cells, but a job has {len(JOB_COLUMNS)}")
    row = dict(zip(JOB_COLUMNS, map(str.strip, cells), strict=True))
    submit_s = None if row["start_time"] in NEVER else number_cell("start_time", row["start_time"])
    return row["job_name"], PaiJob(tenant_cell(row, "user", otherwise="pai"), submit_s)


def _each(column: str, cell: str, tasks: int, whole: float) -> float | None:
    """What all tasks take of what one asks for; None where it does not say."""
    return None if cell in NEVER else number_cell(column, cell) / whole * tasks or None


ALIBABA_V2020 = AlibabaV2020()
ALIBABA_V2020_JOBS = AlibabaV2020Jobs()
