"""A day of workloads on a warehouse: its recurring training jobs, and the first-time ones that nobody has planned for.

Published (MAST §3.1, §5.1, §5.3): about 70 % of the workloads are first-time ones; jobs of the same team frequently share
input tables and need the same hardware, so few of them wait for data. How often a first-time workload reads a table
that none of its team's recurring jobs reads with the others, or wants another GPU model, is not published and drawn here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from data_placement.catalog import Catalog
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId, TableId, TenantId, WorkloadId
from domain.table import Table
from domain.warehouse import Indices, Integers, Warehouse
from formats.trace import TraceRow

TENANT = TenantId("training")
FIRST_TIME = "first"
"""How the names of first-time workloads begin."""
_FIRST_TIME_SHARE = 0.7
_ANOTHER_TABLE = 0.02
"""Of the first-time workloads: one table is any table of the warehouse."""
_ANOTHER_MODEL = 0.02
_FIRST_TIME_HOURS = 0.1
"""Of the GPU hours of the recurring job that it is a variant of: most are experiments."""
_DAY_S = 86_400.0
_GPUS_PER_MACHINE = 8
_GREATEST_GPUS = 64


def day_of(warehouse: Warehouse, rng: np.random.Generator) -> tuple[TraceRow, ...]:
    """The rows of a day, by submission; the same generator gives the same ones.

    A first-time workload is a variant of a recurring one: the same tables or some of them, with the shares above.
    """
    jobs = warehouse.jobs
    recurring = np.flatnonzero(jobs.training & (jobs.gpu_model >= 0))
    rows = [_row(warehouse, int(job), str(jobs.names[int(job)]), rng) for job in recurring]
    variants = round(len(recurring) * _FIRST_TIME_SHARE / (1.0 - _FIRST_TIME_SHARE))
    for number, job in enumerate(rng.choice(recurring, variants).tolist() if len(recurring) else []):
        row = _row(warehouse, job, f"{FIRST_TIME}{number:07d}", rng)
        kept = rng.permutation(len(row.tables))[: int(rng.integers(1, len(row.tables) + 1))]
        tables = [row.tables[place] for place in sorted(kept.tolist())]
        if rng.random() < _ANOTHER_TABLE:
            tables[0] = TableId(str(warehouse.tables.names[int(rng.integers(0, warehouse.tables.count))]))
        model = row.gpu_model
        if rng.random() < _ANOTHER_MODEL:
            model = GpuModel(str(rng.choice(np.array(warehouse.regions.gpu_models))))
        duration_s = max(60.0, row.duration_s * _FIRST_TIME_HOURS)
        rows.append(replace(row, tables=tuple(dict.fromkeys(tables)), gpu_model=model, duration_s=duration_s))
    return tuple(sorted(rows, key=lambda row: (row.submit_s, row.workload_id)))


def _row(warehouse: Warehouse, job: int, name: str, rng: np.random.Generator) -> TraceRow:
    """The job as a workload of 1 to 64 GPUs that takes its GPU hours, at most a day."""
    jobs = warehouse.jobs
    hours = max(0.1, float(jobs.gpu_hours[job]))
    least = int(np.ceil(np.log2(max(1.0, hours / 24.0))))
    gpus = min(_GREATEST_GPUS, 1 << int(np.clip(rng.integers(0, 5), least, 6)))
    read = jobs.tables[jobs.table_start[job] : jobs.table_start[job + 1]].tolist()
    return TraceRow(
        workload_id=WorkloadId(name),
        tenant=TENANT,
        submit_s=round(float(rng.uniform(0.0, _DAY_S)), 1),
        duration_s=min(_DAY_S, round(hours * 3600.0 / gpus, 1)),
        gpus=gpus,
        gpu_model=GpuModel(warehouse.regions.gpu_models[int(jobs.gpu_model[job])]),
        tables=tuple(TableId(str(warehouse.tables.names[table])) for table in read),
    )


def fleet_of(warehouse: Warehouse) -> Fleet:
    """Machines of 8 GPUs that give each region its GPU hours in a day, at least one where it has any of a model."""
    regions = warehouse.regions
    return Fleet(tuple(_region(warehouse, place, name) for place, name in enumerate(regions.names)))


def _region(warehouse: Warehouse, place: int, name: str) -> Region:
    regions = warehouse.regions
    clusters: list[Cluster] = []
    for gpu, model in enumerate(regions.gpu_models):
        hours = float(regions.gpu_hours[gpu, place])
        count = int(np.ceil(hours / 24.0 / _GPUS_PER_MACHINE))
        if hours > 0.0:
            # A gang of the largest size must find room wherever its GPUs are.
            count = max(count, _GREATEST_GPUS // _GPUS_PER_MACHINE)
            machines = tuple(
                Machine(MachineId(f"{name}-{model}-{number:05d}"), GpuModel(model), _GPUS_PER_MACHINE, 96.0, 1024.0)
                for number in range(count)
            )
            clusters.append(Cluster(ClusterId(f"{name}-{model}"), (Rack(RackId(f"{name}-{model}-rack"), machines),)))
    return Region(RegionId(name), tuple(clusters))


def catalog_of(warehouse: Warehouse, home: Indices, copies: Integers) -> Catalog:
    """Where the tables are: (T,) homes, and (T,) sets of regions with a copy, bit r for region r."""
    names = [RegionId(name) for name in warehouse.regions.names]
    tables = []
    for place, (region, mask) in enumerate(zip(home.tolist(), copies.tolist(), strict=True)):
        held = tuple(name for number, name in enumerate(names) if mask >> number & 1)
        size = int(warehouse.tables.size_bytes[place])
        tables.append(Table(TableId(str(warehouse.tables.names[place])), size, names[region], held))
    return Catalog(tables)
