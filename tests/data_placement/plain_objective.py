"""MAST's Fig. 4 written down a second time, slowly: the twin of the state that moves keep up to date."""

from collections.abc import Sequence
from math import exp

from data_placement.objective.goals import Goals
from domain.warehouse import Warehouse


def inferred_region(warehouse: Warehouse, home: Sequence[int], job: int) -> int | None:
    """R(job): the one region of all tables for training, the region of most tables for analytics (§3.3)."""
    homes = [home[table] for table in tables_of(warehouse, job)]
    if warehouse.jobs.training[job]:
        return homes[0] if len(set(homes)) == 1 else None
    return min(set(homes), key=lambda region: (-homes.count(region), region))


def tables_of(warehouse: Warehouse, job: int) -> list[int]:
    start = warehouse.jobs.table_start
    return [int(table) for table in warehouse.jobs.tables[start[job] : start[job + 1]]]


def plain_terms(warehouse: Warehouse, goals: Goals, home: Sequence[int]) -> tuple[float, float, float]:
    """Expressions 1, 2 and 3, each with its weight."""
    jobs, tables, regions = warehouse.jobs, warehouse.tables, warehouse.regions
    across = everything = 0.0
    demand: dict[tuple[int, int, int], float] = {}
    for job in range(jobs.count):
        where = inferred_region(warehouse, home, job)
        for table in tables_of(warehouse, job):
            size = float(tables.size_bytes[table]) * float(jobs.weight[job])
            everything += size
            across += size * (1 - (where is not None and home[table] == where))
        if where is not None and jobs.gpu_model[job] >= 0:
            key = (int(jobs.gpu_model[job]), int(jobs.priority[job]), where)
            demand[key] = demand.get(key, 0.0) + float(jobs.gpu_hours[job])
    gpu_cost = 0.0
    for gpu in range(len(regions.gpu_models)):
        supply = [float(hours) for hours in regions.gpu_hours[gpu]]
        for region in range(regions.count):
            here = sum(demand.get((gpu, rank, region), 0.0) for rank in range(len(jobs.priorities)))
            over = max(0.0, here - supply[region]) / goals.overload_unit_gpu_hours
            sigmoid = 1.0 / (1.0 + exp(-over)) if goals.penalise_overload else 1.0
            for rank, priority in enumerate(jobs.priorities):
                wanted = sum(
                    float(jobs.gpu_hours[job])
                    for job in range(jobs.count)
                    if jobs.gpu_model[job] == gpu and jobs.priority[job] == rank
                )
                if wanted == 0.0:
                    continue
                share = supply[region] / sum(supply) if sum(supply) else 0.0
                apart = demand.get((gpu, rank, region), 0.0) / wanted - share
                gpu_cost += goals.gpu_balance * goals.weight_of(priority, rank) * apart**2 * sigmoid
    stored = [
        sum(float(tables.size_bytes[t]) for t in range(tables.count) if home[t] == r) for r in range(regions.count)
    ]
    storage_cost = sum(
        goals.storage_balance
        * (stored[region] / sum(stored) - float(regions.storage_bytes[region] / regions.storage_bytes.sum())) ** 2
        for region in range(regions.count)
    )
    return goals.cross_region_reads * across / everything, gpu_cost, storage_cost
