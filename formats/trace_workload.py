"""A row of a trace as a workload that can be submitted: emulated, and cut into tasks that fit the machines."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, GpuModel, JobName, TenantId
from domain.model_profile import ModelProfile
from domain.resources import TaskResources
from domain.scaling import measured
from domain.workload import DEFAULT_STOP_GRACE_S, Emulated, JobSpecification, TableInput, WorkloadSpecification
from formats.trace import TraceRow

JOB_NAME = JobName("main")
MODEL_LABEL = "model"
"""The label that says what a workload trains."""


def greatest_gpus_per_machine(fleet: Fleet) -> dict[GpuModel, int]:
    """The GPUs of the largest machine of each model, and under `any` of the largest of all."""
    greatest: dict[GpuModel, int] = {ANY_GPU_MODEL: 0}
    for region in fleet.regions:
        for machine in region.machines():
            if machine.gpus > 0:
                for model in (machine.gpu_model, ANY_GPU_MODEL):
                    greatest[model] = max(greatest.get(model, 0), machine.gpus)
    return greatest


def tasks_for_gpus(gpus: int, greatest_per_task: int) -> int:
    """The fewest equal tasks with at most so many GPUs each: 12 GPUs on 8-GPU machines are 2 tasks of 6."""
    if gpus <= 0 or greatest_per_task <= 0:
        return 1
    tasks = -(-gpus // greatest_per_task)
    while gpus % tasks:
        tasks += 1
    return tasks


def tenant_of_trace(name: TenantId, tenants: Sequence[TenantId]) -> TenantId:
    """Which tenant of ours a trace's tenant is: the one of that name, else one chosen by the name's checksum.

    So every virtual cluster of a trace always maps to the same tenant, whatever came before it.
    """
    if name in tenants:
        return name
    return tenants[zlib.crc32(name.encode("utf-8")) % len(tenants)]


def model_of(specification: WorkloadSpecification) -> str:
    """What the workload trains, as its label says; empty: it does not say."""
    return next((value for name, value in specification.labels if name == MODEL_LABEL), "")


def workload_of_row(
    row: TraceRow,
    gpus_per_machine: Mapping[GpuModel, int],
    *,
    tenant: TenantId | None = None,
    duration_factor: float = 1.0,
    tasks: int | None = None,
    anywhere: bool = False,
    stop_grace_s: float = DEFAULT_STOP_GRACE_S,
) -> WorkloadSpecification:
    """The emulated workload of a row, named by its id; `tenant` replaces the trace's, durations are multiplied.

    Where the row does not say how many tasks, they are `tasks`, else the fewest that fit `gpus_per_machine` (see
    `greatest_gpus_per_machine`). It may run in the row's region only, unless it may run `anywhere`. An elastic row's base tasks are its `min_tasks`; its duration, which is that of
    the tasks asked for, is stretched as its speed grows with its tasks: by its curve, else in proportion.
    """
    asked_tasks = row.tasks if row.tasks is not None else tasks
    if asked_tasks is None:
        greatest = gpus_per_machine.get(row.gpu_model) or gpus_per_machine.get(ANY_GPU_MODEL, 0)
        asked_tasks = tasks_for_gpus(row.gpus, greatest)
    base_tasks = row.min_tasks if row.min_tasks is not None else asked_tasks
    most_tasks = max(asked_tasks, row.max_tasks or 0)
    factor = duration_factor * asked_tasks / base_tasks
    if row.scaling:
        factor = duration_factor * measured(row.scaling).rate(base_tasks, asked_tasks)
    job = JobSpecification(
        name=JOB_NAME,
        tasks=base_tasks,
        max_tasks=most_tasks if most_tasks > base_tasks else 0,
        resources=TaskResources(
            gpus=row.gpus // asked_tasks,
            gpu_model=row.gpu_model if row.gpus else ANY_GPU_MODEL,
            cpus=row.cpus / asked_tasks if row.cpus is not None else None,
            memory_gib=row.memory_gib / asked_tasks if row.memory_gib is not None else None,
        ),
        entry_point=Emulated(row.duration_s * factor, (row.checkpoint_s or 0.0) * factor),
        profile=ModelProfile(row.skew) if row.skew is not None else None,
        scaling=row.scaling,
        across_clusters=row.across_clusters is True,
    )
    return WorkloadSpecification(
        name=str(row.workload_id),
        tenant=tenant if tenant is not None else row.tenant,
        jobs=(job,),
        tables=tuple([TableInput(table) for table in row.tables]) if row.tables else (),
        regions=(row.region,) if row.region is not None and not anywhere else (),
        labels=((MODEL_LABEL, row.model),) if row.model else (),
        stop_grace_s=stop_grace_s,
        max_time_s=row.max_time_s,
        priority_class=row.priority_class,
    )
