"""Helios's `cluster_log.csv` (SenseTime; Hu et al., SC 2021), as in S-Lab-System-Group/HeliosData. A VC is a tenant.

Jobs without GPUs are left out: the log does not say how much memory they need. The duration is from start to end,
whatever the job's final state was. Times have no zone and are taken as UTC.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.identifiers import WorkloadId
from formats.row_report import RowReport
from formats.trace import TraceRow
from formats.trace_cells import name_cell, number_cell
from simulator.inputs.importers.accepting import LeftOut
from simulator.inputs.importers.cells import (
    date_cell,
    gpus_cell,
    seconds_between,
    tasks_on_machines,
    tenant_cell,
)
from simulator.inputs.importers.table_importer import TableImporter


def _row(cells: Mapping[str, str], row_report: RowReport) -> TraceRow:
    gpus = gpus_cell("gpu_num", cells["gpu_num"])
    if gpus == 0:
        raise LeftOut("use no GPU")
    return TraceRow(
        workload_id=WorkloadId(name_cell("job_id", cells["job_id"])),
        tenant=tenant_cell(cells, "vc", otherwise="helios"),
        submit_s=date_cell("submit_time", cells["submit_time"]),
        duration_s=seconds_between(cells, "start_time", "end_time"),
        gpus=gpus,
        tasks=tasks_on_machines("node_num", cells["node_num"], gpus, row_report),
        cpus=number_cell("cpu_num", cells["cpu_num"]) or None,
    )


HELIOS_LOG = TableImporter(
    name="helios",
    title="Helios's cluster_log.csv",
    columns=("job_id", "vc", "gpu_num", "cpu_num", "node_num", "submit_time", "start_time", "end_time"),
    convert=_row,
    epoch=True,
)
