"""The placement problem of MAST's Fig. 4 as arrays, for compiled code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from data_placement.objective.goals import Goals
from domain.warehouse import Flags, Floats, Indices, Integers, Warehouse


class PlacementProblem(NamedTuple):
    """What stays the same while tables move. Sizes: T tables, J jobs, R regions, G GPU models, P priorities, A applications."""

    table_bytes: Floats
    """(T,)"""
    reader_start: Integers
    """(T + 1,) the jobs that read table t are `readers[reader_start[t] : reader_start[t + 1]]`."""
    readers: Indices
    table_start: Integers
    """(J + 1,) the tables that job j reads are `tables[table_start[j] : table_start[j + 1]]`."""
    tables: Indices
    training: Flags
    """(J,) whether the job needs all its tables in its region."""
    gpu_model: Indices
    """(J,) -1 for none."""
    priority: Indices
    """(J,)"""
    gpu_hours: Floats
    """(J,)"""
    cpu_hours: Floats
    """(J,)"""
    application: Indices
    """(J,) -1 for none."""
    read_bytes: Floats
    """(J,) of all its tables."""
    read_cost: Floats
    """(J,) what a byte read across regions costs: w1 and the job's weight, over all bytes that are read."""
    high: Flags
    """(J,) whether Expression 6 counts it: high-priority training on GPUs."""
    demand_total: Floats
    """(G, P) the demand of all regions and of jobs that are in none yet: what Expression 7 divides by; at least tiny."""
    gpu_supply: Floats
    """(G, R)"""
    gpu_share: Floats
    """(G, R) of all regions' supply."""
    priority_cost: Floats
    """(P,) w2 · w_P"""
    storage_supply: Floats
    """(R,)"""
    storage_share: Floats
    """(R,)"""
    stored_total: float
    """Bytes of all tables."""
    storage_cost: float
    """w3"""
    cpu_supply: Floats
    """(A, R)"""
    overload_unit: float
    """GPU hours; 0 when overload costs no more than its opposite."""
    home_least: float
    """Expression 6: GPU hours of high-priority training that are to be trained at home."""
    gpu_limited: bool
    storage_limited: bool
    cpu_limited: bool

    @property
    def regions(self) -> int:
        return len(self.storage_supply)


TINY = 1e-300
"""Instead of zero where something is divided by a sum that may be zero; the dividend is zero then."""


def problem_of(warehouse: Warehouse, goals: Goals) -> PlacementProblem:
    """The problem for a warehouse and what is to be achieved there."""
    regions, tables, jobs = warehouse.regions, warehouse.tables, warehouse.jobs
    start, readers = warehouse.readers()
    sizes = tables.size_bytes.astype(np.float64)
    read_bytes = job_bytes(sizes, jobs.table_start, jobs.tables)
    on_gpus = jobs.gpu_model >= 0
    demand = np.zeros((len(regions.gpu_models), len(jobs.priorities)))
    np.add.at(demand, (jobs.gpu_model[on_gpus], jobs.priority[on_gpus]), jobs.gpu_hours[on_gpus])
    lowest_high = min(jobs.priorities, default=0) if goals.high_priority is None else goals.high_priority
    is_high = np.array([priority <= lowest_high for priority in jobs.priorities], np.bool_)
    high = jobs.training & on_gpus & is_high[jobs.priority] if jobs.count else np.zeros(0, np.bool_)
    weights = [goals.weight_of(priority, rank) for rank, priority in enumerate(jobs.priorities)]
    cpu_supply = regions.cpu_hours if regions.cpu_hours is not None else np.zeros((0, regions.count))
    return PlacementProblem(
        table_bytes=sizes,
        reader_start=start,
        readers=readers,
        table_start=jobs.table_start,
        tables=jobs.tables,
        training=jobs.training,
        gpu_model=jobs.gpu_model,
        priority=jobs.priority,
        gpu_hours=jobs.gpu_hours,
        cpu_hours=jobs.cpu_hours,
        application=jobs.application,
        read_bytes=read_bytes,
        read_cost=goals.cross_region_reads * jobs.weight / max(float((jobs.weight * read_bytes).sum()), TINY),
        high=high,
        demand_total=np.maximum(demand, TINY),
        gpu_supply=regions.gpu_hours,
        gpu_share=_shares(regions.gpu_hours),
        priority_cost=goals.gpu_balance * np.array(weights, np.float64),
        storage_supply=regions.storage_bytes,
        storage_share=_shares(regions.storage_bytes),
        stored_total=max(float(sizes.sum()), TINY),
        storage_cost=goals.storage_balance,
        cpu_supply=cpu_supply,
        overload_unit=goals.overload_unit_gpu_hours if goals.penalise_overload else 0.0,
        home_least=goals.home_training_share * float(jobs.gpu_hours[high].sum()),
        gpu_limited=goals.gpu.limits,
        storage_limited=goals.storage.limits,
        cpu_limited=goals.cpu.limits,
    )


def job_bytes(sizes: Floats, table_start: Integers, tables: Indices) -> Floats:
    """(J,) the size of all tables of each job."""
    job_of_pair = np.repeat(np.arange(len(table_start) - 1), np.diff(table_start))
    return np.bincount(job_of_pair, weights=sizes[tables], minlength=len(table_start) - 1).astype(np.float64)


def _shares(amounts: Floats) -> Floats:
    """Each amount over the sum along the last axis."""
    return np.asarray(amounts / np.maximum(amounts.sum(axis=-1, keepdims=True), TINY))
