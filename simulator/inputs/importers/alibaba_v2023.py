"""`openb_pod_list_*.csv` of Alibaba's GPU trace v2023 (Weng et al., ATC 2023), alibaba/clusterdata.

A pod is a workload, from the moment it was scheduled until it was deleted; its QoS class is its tenant. A share of a
GPU becomes a whole one. A pod that would take several GPU models takes any here. CPU pods stay: they say what they need.
"""

from __future__ import annotations

from collections.abc import Mapping

from domain.identifiers import ANY_GPU_MODEL, GpuModel, WorkloadId
from formats.row_report import RowReport
from formats.trace import TraceRow
from formats.trace_cells import name_cell, number_cell
from simulator.inputs.importers.accepting import LeftOut
from simulator.inputs.importers.cells import NEVER, gpus_cell, gpus_of_share, positive_duration, tenant_cell
from simulator.inputs.importers.table_importer import TableImporter


def _row(cells: Mapping[str, str], row_report: RowReport) -> TraceRow:
    gpus = gpus_cell("num_gpu", cells["num_gpu"])
    if gpus == 1:
        gpus = gpus_of_share("gpu_milli", cells["gpu_milli"], 1000.0, row_report) or 1
    return TraceRow(
        workload_id=WorkloadId(name_cell("name", cells["name"])),
        tenant=tenant_cell(cells, "qos", otherwise="alibaba"),
        submit_s=number_cell("creation_time", cells["creation_time"]),
        duration_s=_duration_s(cells),
        gpus=gpus,
        gpu_model=_model(cells.get("gpu_spec", ""), row_report) if gpus else ANY_GPU_MODEL,
        tasks=1,
        cpus=number_cell("cpu_milli", cells["cpu_milli"]) / 1000 or None,
        memory_gib=number_cell("memory_mib", cells["memory_mib"]) / 1024 or None,
    )


def _duration_s(cells: Mapping[str, str]) -> float:
    if cells["scheduled_time"] in NEVER:
        raise LeftOut("never started")
    if cells["deletion_time"] in NEVER:
        raise LeftOut("had not ended when the log was written")
    end_s = number_cell("deletion_time", cells["deletion_time"])
    start_s = number_cell("scheduled_time", cells["scheduled_time"])
    return positive_duration(end_s - start_s, "deletion_time", "is before scheduled_time")


def _model(cell: str, row_report: RowReport) -> GpuModel:
    models = [model for model in cell.split("|") if model not in NEVER]
    if len(models) > 1:
        row_report.adjust("would take some GPU models, and take any")
    return GpuModel(name_cell("gpu_spec", models[0])) if len(models) == 1 else ANY_GPU_MODEL


ALIBABA_V2023 = TableImporter(
    name="alibaba-v2023",
    title="Alibaba's GPU trace v2023, openb_pod_list",
    columns=(
        "name",
        "cpu_milli",
        "memory_mib",
        "num_gpu",
        "gpu_milli",
        "creation_time",
        "deletion_time",
        "scheduled_time",
    ),
    convert=_row,
)
