"""`kalos_jobs.csv`: converted large-model jobs of Acme/Kalos. The class of a job (`pretrain`, ...) is its tenant.

Memory is given per pod, and there is a pod on each node.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.identifiers import WorkloadId
from formats.row_report import RowReport
from formats.trace import TraceRow
from formats.trace_cells import name_cell, number_cell, positive_cell
from simulator.inputs.importers.cells import gpus_cell, tasks_on_machines, tenant_cell
from simulator.inputs.importers.table_importer import TableImporter


def _row(cells: Mapping[str, str], row_report: RowReport) -> TraceRow:
    gpus = gpus_cell("gpus", cells["gpus"])
    pods = number_cell("nodes", cells["nodes"])
    return TraceRow(
        workload_id=WorkloadId(name_cell("job_id", cells["job_id"])),
        tenant=tenant_cell(cells, "job_class", otherwise="kalos"),
        submit_s=number_cell("submit_s", cells["submit_s"]),
        duration_s=positive_cell("duration_s", cells["duration_s"]),
        gpus=gpus,
        tasks=tasks_on_machines("nodes", cells["nodes"], gpus, row_report),
        cpus=number_cell("cpus", cells["cpus"]) or None,
        memory_gib=number_cell("memory_per_pod_gb", cells["memory_per_pod_gb"]) * pods or None,
    )


KALOS_JOBS = TableImporter(
    name="kalos-jobs",
    title="converted Acme/Kalos jobs",
    columns=("job_id", "job_class", "gpus", "nodes", "cpus", "memory_per_pod_gb", "submit_s", "duration_s"),
    convert=_row,
)
