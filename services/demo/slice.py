"""Which workloads the demo submits, and when: a slice of a trace, fitted to the fleet and to three minutes.

What is done to the trace is said in the summary: durations are cut, times between submissions are scaled so that the
fleet is contended, workloads that no machine of the fleet could hold are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from domain.fleet import Fleet
from domain.identifiers import TenantId
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import TableInput, WorkloadSpecification
from formats.trace import TraceRow, read_trace
from formats.trace_workload import (
    MODEL_LABEL,
    greatest_gpus_per_machine,
    model_of,
    tenant_of_trace,
    workload_of_row,
)
from regional_scheduler.hosting import EmptyRegion, HostingRegions
from services.demo.options import DemoOptions
from simulator.workload_generator import GeneratorSettings, generate_workloads

_TABLE_SHARE = 0.3
"""This part of the workloads reads a table (no public trace says which): it limits the regions that can run them."""

_ELASTIC_SHARE = 0.2
"""This part of those with GPUs may grow."""

_PROFILED_SHARE = 0.6
"""This part of those with GPUs trains a model of which a profile says how much CPUs help it."""


@dataclass(frozen=True, slots=True)
class TimedSubmission:
    """A workload and when to submit it, in seconds after the start."""

    after_s: float
    specification: WorkloadSpecification


@dataclass(frozen=True, slots=True)
class TraceSlice:
    """What the demo replays, and what was done to make it fit."""

    source: str
    submissions: tuple[TimedSubmission, ...]
    span_s: float
    longest_s: float
    durations_cut: int
    left_out: int
    arrivals_scaled_by: float


def make_slice(
    options: DemoOptions,
    fleet: Fleet,
    tables: Sequence[Table],
    tenants: Sequence[Tenant],
    models: Sequence[str] = (),
) -> TraceSlice:
    """The slice for these options; `models` have sensitivity profiles. Raises FormatError for a trace that cannot be read, ValueError for an empty one."""
    rng = np.random.default_rng(options.seed)
    if options.trace is None:
        source = "built-in generator (MAST §5.1, HiveD Table 1 percentiles)"
        rows = list(
            islice(
                generate_workloads(GeneratorSettings.for_fleet(fleet, tenants, options.workloads, tables=tables), rng),
                options.workloads,
            )
        )
    else:
        source = options.trace.name
        rows = _middle_of(options.trace, options.workloads)
    if not rows:
        raise ValueError(f"{source} has no workload to run")
    return _fit(source, rows, options, fleet, tables, tenants, models, rng)


def _middle_of(trace: Path, count: int) -> list[TraceRow]:
    """So many consecutive rows from the middle: the beginnings of traces are thin."""
    rows = sorted(read_trace(trace), key=lambda row: (row.submit_s, row.workload_id))
    start = max(0, (len(rows) - count) // 2)
    return rows[start : start + count]


def _fit(
    source: str,
    rows: Sequence[TraceRow],
    options: DemoOptions,
    fleet: Fleet,
    tables: Sequence[Table],
    tenants: Sequence[Tenant],
    models: Sequence[str],
    rng: np.random.Generator,
) -> TraceSlice:
    hosting = HostingRegions(fleet.regions)
    empty_regions = [EmptyRegion(region) for region in fleet.regions]
    per_machine = greatest_gpus_per_machine(fleet)
    names = [tenant.tenant for tenant in tenants]
    fitted: list[tuple[float, WorkloadSpecification, float]] = []
    cut = left_out = 0
    for row in rows:
        duration_s = min(row.duration_s, options.duration_cap_s)
        cut += duration_s < row.duration_s
        tenant: TenantId = tenant_of_trace(row.tenant, names)
        specification = workload_of_row(
            replace(row, duration_s=max(1.0, duration_s), region=None, tables=()), per_machine, tenant=tenant
        )
        specification = _elastic(_with_table(specification, tables, empty_regions, rng), rng)
        specification = _profiled(specification, models, rng)
        if hosting.refusal(specification) is not None:
            left_out += 1
            continue
        fitted.append((row.submit_s, specification, duration_s))
    gpus = sum(machine.gpus for region in fleet.regions for machine in region.machines())
    work_gpu_s = sum(specification.demand.total_gpus * duration_s for _, specification, duration_s in fitted)
    first_s, last_s = fitted[0][0], fitted[-1][0]
    wanted_span_s = work_gpu_s / (options.load * gpus)
    scale = wanted_span_s / (last_s - first_s) if last_s > first_s else 1.0
    return TraceSlice(
        source=source,
        submissions=tuple(
            TimedSubmission((submit_s - first_s) * scale, specification) for submit_s, specification, _ in fitted
        ),
        span_s=wanted_span_s,
        longest_s=max(duration_s for _, _, duration_s in fitted),
        durations_cut=cut,
        left_out=left_out,
        arrivals_scaled_by=scale,
    )


def _elastic(specification: WorkloadSpecification, rng: np.random.Generator) -> WorkloadSpecification:
    """Now and then a job that may grow to twice its tasks."""
    job, *others = specification.jobs
    if rng.random() >= _ELASTIC_SHARE or others or not job.resources.gpus:
        return specification
    return replace(specification, jobs=(replace(job, max_tasks=2 * job.tasks),))


def _profiled(
    specification: WorkloadSpecification, models: Sequence[str], rng: np.random.Generator
) -> WorkloadSpecification:
    """Now and then one of the models, where the trace names none."""
    draw, which = rng.random(), int(rng.integers(1 << 30))
    if draw >= _PROFILED_SHARE or not models or model_of(specification) or not specification.demand.total_gpus:
        return specification
    return replace(specification, labels=(*specification.labels, (MODEL_LABEL, models[which % len(models)])))


def _with_table(
    specification: WorkloadSpecification,
    tables: Sequence[Table],
    regions: Sequence[EmptyRegion],
    rng: np.random.Generator,
) -> WorkloadSpecification:
    """Now and then a table, of those that are in a region that can host the workload: whoever waits for a
    table's copy is staged (staged_workloads.py)."""
    draw, which = rng.random(), int(rng.integers(1 << 30))
    if draw >= _TABLE_SHARE or specification.demand.total_gpus == 0:
        return specification
    able = {region.region for region in regions if region.refusal(specification) is None}
    readable = [table for table in tables if able.intersection(table.regions)]
    if not readable:
        return specification
    return replace(specification, tables=(TableInput(readable[which % len(readable)].table),))
