"""Slurm's accounting as `sacct --allusers --allocations --parsable2 --format=...` prints it, with its header line.

Needed are JobID, Submit, one of ElapsedRaw, Elapsed or Start with End, and the GPUs: AllocTRES or ReqTRES
(`gres/gpu=4`), on old versions AllocGRES or ReqGRES (`gpu:4`). Account, else User, else Partition, is the tenant. Steps
of jobs (`12.batch`) are left out, as are jobs that never started or still run; jobs without GPUs stay when their CPUs
and memory are known. Times are the cluster's and are taken as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from domain.identifiers import ANY_GPU_MODEL, GpuModel, WorkloadId
from formats.problems import in_quotes
from formats.row_report import RowReport
from formats.trace import GREATEST_GPUS, TraceRow
from formats.trace_cells import BadCell, name_cell, number_cell, whole_cell
from simulator.inputs.importers.accepting import LeftOut
from simulator.inputs.importers.cells import (
    NEVER,
    date_cell,
    positive_duration,
    seconds_between,
    tasks_on_machines,
    tenant_cell,
)
from simulator.inputs.importers.importer import FileHead
from simulator.inputs.importers.table_importer import TableImporter

_REQUIRED = ("JobID", "Submit")
_GPU_COLUMNS = ("AllocTRES", "ReqTRES", "AllocGRES", "ReqGRES")
_is_elapsed = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,3}):)?(\d{1,3}):(\d{2})(?:\.\d+)?", re.ASCII).fullmatch
_is_amount = re.compile(r"([0-9]+(?:\.[0-9]+)?)([KMGTP]?)i?B?([nc]?)", re.ASCII).fullmatch
_GIB = {"": 2.0**-10, "K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 2.0**10, "P": 2.0**20}.get
"""GiB of a unit of memory; without one it is MiB."""
_CPU_COLUMNS = ("AllocCPUS", "NCPUS", "ReqCPUS")
_UNFINISHED = ("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING")


@dataclass(frozen=True, slots=True)
class Sacct:
    name: str = "sacct"
    title: str = "Slurm's sacct --parsable2"
    epoch: bool = True

    def recognises(self, head: FileHead) -> bool:
        cells = head.cells("|")
        return len(cells) > 1 and any(name in cells for name in ("JobID", "JobIDRaw"))

    def rows(self, lines: Iterable[str], row_report: RowReport) -> Iterator[TraceRow]:
        table = TableImporter(self.name, self.title, columns=_REQUIRED, convert=_row, delimiter="|", epoch=self.epoch)
        return table.rows(lines, row_report)


def _row(cells: Mapping[str, str], row_report: RowReport) -> TraceRow:
    identifier = cells["JobID"]
    if "." in identifier:
        raise LeftOut("are steps of jobs")
    if "[" in identifier or cells.get("State", "").startswith(_UNFINISHED):
        raise LeftOut("had not ended when the log was written")
    if cells.get("Start", "?") in NEVER:
        raise LeftOut("never started")
    resources = _resources(cells)
    gpus, model = _gpus(resources, cells)
    cpus, memory_gib = _cpus(resources, cells), _memory_gib(resources, cells)
    if not gpus and not (cpus and memory_gib):
        raise LeftOut("use no GPU, and do not say how much else")
    machines = resources.get("node") or cells.get("AllocNodes") or cells.get("NNodes") or ""
    return TraceRow(
        # An array's task is 12_3, a heterogeneous job's part 12+1, and a name has no plus.
        workload_id=WorkloadId(name_cell("JobID", identifier.replace("+", ":"))),
        tenant=tenant_cell(cells, "Account", "User", "Partition", otherwise="slurm"),
        submit_s=date_cell("Submit", cells["Submit"]),
        duration_s=_duration_s(cells),
        gpus=gpus,
        gpu_model=model,
        tasks=tasks_on_machines("NNodes", machines, gpus, row_report),
        cpus=cpus,
        memory_gib=memory_gib,
    )


def _duration_s(cells: Mapping[str, str]) -> float:
    raw = cells.get("ElapsedRaw", "")
    if raw not in NEVER:
        return positive_duration(float(whole_cell("ElapsedRaw", raw, 0, 10**12)), "ElapsedRaw", "is negative")
    elapsed = cells.get("Elapsed", "")
    if elapsed not in NEVER:
        return positive_duration(_elapsed_s(elapsed), "Elapsed", "is negative")
    if "Start" not in cells or "End" not in cells:
        raise BadCell("ElapsedRaw", "is missing, and so are Elapsed and Start with End; add one of them to --format")
    return seconds_between(cells, "Start", "End")


def _elapsed_s(cell: str) -> float:
    """Of `[days-]hours:minutes:seconds`."""
    found = _is_elapsed(cell)
    if not found:
        raise BadCell("Elapsed", f"must be [days-]hours:minutes:seconds, not {in_quotes(cell)}")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _resources(cells: Mapping[str, str]) -> dict[str, str]:
    """Trackable resources by name: the allocated ones, else the requested ones."""
    for column in ("AllocTRES", "ReqTRES"):
        cell = cells.get(column, "")
        if cell not in NEVER:
            pairs = (entry.partition("=") for entry in cell.split(","))
            return {name.strip(): amount.strip() for name, _, amount in pairs}
    return {}


def _gpus(resources: Mapping[str, str], cells: Mapping[str, str]) -> tuple[int, GpuModel]:
    """How many, and of which model where only one is named."""
    if not any(column in cells for column in _GPU_COLUMNS):
        columns = " or ".join(_GPU_COLUMNS)
        raise BadCell("AllocTRES", f"is missing: GPUs are counted from {columns}; add one to --format")
    counts = {name.removeprefix("gres/"): amount for name, amount in resources.items() if name.startswith("gres/gpu")}
    if not counts:
        for column in ("AllocGRES", "ReqGRES"):
            counts |= dict(entry.rpartition(":")[::2] for entry in _entries(cells.get(column, "")))
    models = [name.partition(":")[2] for name in counts if ":" in name]
    numbers = {name: whole_cell("AllocTRES", amount, 0, GREATEST_GPUS) for name, amount in counts.items()}
    # Slurm writes the sum beside the models when both are tracked.
    total = numbers.get("gpu", sum(numbers.values()))
    one_model = total > 0 and len(models) == 1
    return total, GpuModel(name_cell("AllocTRES", models[0])) if one_model else ANY_GPU_MODEL


def _entries(cell: str) -> list[str]:
    """`gpu:4`, `gpu:a100:4`, `gpu:a100:4(IDX:0-3)`, `gpu` (which is one) of an old cell."""
    found = [entry.partition("(")[0].strip() for entry in cell.split(",")] if cell not in NEVER else []
    gpus = [entry.removeprefix("gres:").removeprefix("gres/") for entry in found]
    return [entry if ":" in entry else f"{entry}:1" for entry in gpus if entry == "gpu" or entry.startswith("gpu:")]


def _cpus(resources: Mapping[str, str], cells: Mapping[str, str]) -> float | None:
    for column, cell in (("AllocTRES", resources.get("cpu", "")), *((c, cells.get(c, "")) for c in _CPU_COLUMNS)):
        if cell not in NEVER:
            return number_cell(column, cell) or None
    return None


def _memory_gib(resources: Mapping[str, str], cells: Mapping[str, str]) -> float | None:
    """Of the whole job; old versions write ReqMem per machine (`4Gn`) or per CPU (`4Gc`)."""
    cell = resources.get("mem", "") or cells.get("ReqMem", "")
    if cell in NEVER:
        return None
    found = _is_amount(cell)
    if not found:
        raise BadCell("AllocTRES", f"must have an amount of memory such as mem=64G, not {in_quotes(cell)}")
    amount, unit, per = found.groups()
    gib = float(amount) * (_GIB(unit) or 0.0)
    if per == "n":
        gib *= number_cell("NNodes", cells.get("NNodes") or cells.get("AllocNodes") or "1")
    elif per == "c":
        gib *= _cpus(resources, cells) or 1.0
    return gib or None


SACCT = Sacct()
