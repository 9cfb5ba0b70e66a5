"""Every format of jobs that can be read, and which one a file is in.

A package brings a format as an entry point of the group `topmast.trace_formats`: its value is an `Importer`, or a function
without parameters that makes one (docs/extending.md has a worked example).
"""

from __future__ import annotations

from typing import TypeGuard

from formats.plug_ins import plug_ins
from formats.problems import FieldProblem, FormatError, suggestion
from simulator.inputs.importers.acme_trace import ACME_TRACE
from simulator.inputs.importers.alibaba_v2020 import ALIBABA_V2020, ALIBABA_V2020_JOBS
from simulator.inputs.importers.alibaba_v2023 import ALIBABA_V2023
from simulator.inputs.importers.chronus_jobs import CHRONUS_JOBS
from simulator.inputs.importers.gavel_philly import GAVEL_PHILLY
from simulator.inputs.importers.helios_log import HELIOS_LOG
from simulator.inputs.importers.importer import FileHead, Importer
from simulator.inputs.importers.itp_jobs import ITP_JOBS
from simulator.inputs.importers.kalos_jobs import KALOS_JOBS
from simulator.inputs.importers.pai_tasks import PAI_TASKS
from simulator.inputs.importers.philly_jobs import PHILLY_JOBS
from simulator.inputs.importers.philly_log import PHILLY_LOG
from simulator.inputs.importers.sacct import SACCT
from simulator.inputs.importers.swf import SWF
from simulator.inputs.importers.synergy_jobs import SYNERGY_JOBS
from simulator.inputs.importers.tiresias_jobs import TIRESIAS_JOBS
from simulator.inputs.importers.topmast_trace import TOPMAST_TRACE
from simulator.inputs.importers.venus_jobs import VENUS_JOBS

ENTRY_POINT_GROUP = "topmast.trace_formats"

BUILT_IN: tuple[Importer, ...] = (
    PHILLY_LOG,
    HELIOS_LOG,
    ACME_TRACE,
    ALIBABA_V2020,
    ALIBABA_V2020_JOBS,
    ALIBABA_V2023,
    SACCT,
    SWF,
    PHILLY_JOBS,
    ITP_JOBS,
    VENUS_JOBS,
    PAI_TASKS,
    KALOS_JOBS,
    GAVEL_PHILLY,
    CHRONUS_JOBS,
    SYNERGY_JOBS,
    TIRESIAS_JOBS,
    TOPMAST_TRACE,
)
"""In the order in which they are asked: the first that recognises a file reads it, the generic trace last."""


def importers() -> tuple[Importer, ...]:
    """Those that installed packages bring, then the built-in ones: in the order in which they are asked.

    A package is asked first, for it was installed on purpose. Raises FormatError for an entry point that brings none, or
    whose name is taken.
    """
    brought = plug_ins(ENTRY_POINT_GROUP, "trace format", _is_importer, [importer.name for importer in BUILT_IN])
    return (*brought, *BUILT_IN)


def _is_importer(value: object) -> TypeGuard[Importer]:
    return isinstance(value, Importer)


def importer_names() -> tuple[str, ...]:
    """What `--format` may say."""
    return tuple(importer.name for importer in importers())


def importer_named(name: str) -> Importer:
    """The importer of that name; raises FormatError when there is none."""
    for importer in importers():
        if importer.name == name:
            return importer
    description = f"there is no format {name}; {suggestion(name, importer_names(), 'format')}"
    raise FormatError("--format", [FieldProblem("", description)])


def importer_for(head: FileHead, source: str) -> Importer:
    """The importer that recognises a file by its first lines; raises FormatError when none does."""
    # A file of ours says so by its first column, whatever columns it has beside.
    if "workload_id" in head.cells():
        return TOPMAST_TRACE
    for importer in importers():
        if importer.recognises(head):
            return importer
    shown = (head.lines[0] if head.lines else "")[:80]
    description = f"is of no format that is known here: {shown!r}; name it with --format: {', '.join(importer_names())}"
    raise FormatError(source, [FieldProblem("line 1", description)])
