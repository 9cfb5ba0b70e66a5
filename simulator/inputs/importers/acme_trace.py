"""AcmeTrace's `trace_seren.csv` and `trace_kalos.csv` (Shanghai AI Lab; Hu et al., NSDI 2024), InternLM/AcmeTrace.

The type of work (`Pretrain`, `SFT`, `Evaluation`, ...) is the tenant: there are no virtual clusters, and quota goes by
type. The duration is from start to end; Kalos's own column `duration` has the time in the queue in it. Kalos says the
memory of a pod, one on each node. Jobs without GPUs are left out, since Seren says nothing of memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.identifiers import WorkloadId
from formats.row_report import RowReport
from formats.trace import TraceRow
from formats.trace_cells import name_cell, number_cell
from simulator.inputs.importers.accepting import LeftOut
from simulator.inputs.importers.cells import (
    NEVER,
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
    pod_memory = cells.get("mem_per_pod_GB", "")
    memory_gib = None
    if pod_memory not in NEVER:
        memory_gib = number_cell("mem_per_pod_GB", pod_memory) * number_cell("node_num", cells["node_num"])
    return TraceRow(
        workload_id=WorkloadId(name_cell("job_id", cells["job_id"])),
        tenant=tenant_cell(cells, "type", otherwise="acme"),
        submit_s=date_cell("submit_time", cells["submit_time"]),
        duration_s=seconds_between(cells, "start_time", "end_time"),
        gpus=gpus,
        tasks=tasks_on_machines("node_num", cells["node_num"], gpus, row_report),
        cpus=number_cell("cpu_num", cells["cpu_num"]) or None,
        memory_gib=memory_gib or None,
    )


ACME_TRACE = TableImporter(
    name="acme",
    title="AcmeTrace's trace_seren.csv and trace_kalos.csv",
    columns=("job_id", "node_num", "gpu_num", "cpu_num", "type", "submit_time", "start_time", "end_time"),
    convert=_row,
    epoch=True,
)
