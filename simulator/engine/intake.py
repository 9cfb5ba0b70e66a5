"""Rows of a trace become workloads that can be submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from domain.identifiers import ANY_GPU_MODEL, GpuModel, TenantId
from domain.resources import TaskResources
from domain.tenant import Tenant, quota_charges
from domain.workload import Emulated, TableInput, Workload
from formats.trace import TraceRow
from formats.trace_workload import workload_of_row
from simulator.engine.regions import RegionRoom
from simulator.engine.workloads import SimulatedWorkload
from simulator.policies.placement import PlacementPolicy

Kind: TypeAlias = tuple[tuple[tuple[int, TaskResources], ...], tuple[int, ...], int]
"""Shapes of the jobs, eligible regions, and the tenant where tenants are kept apart."""


class Intake:
    """Makes workloads of rows, and knows which are alike."""

    def __init__(
        self,
        tenants: Sequence[Tenant],
        room: RegionRoom,
        placement: PlacementPolicy,
        greatest_gpus_per_machine: Mapping[GpuModel, int],
        checkpoint_interval_s: float,
        *,
        tenants_apart: bool,
    ) -> None:
        self._tenants = list(tenants)
        self._position = {tenant.tenant: position for position, tenant in enumerate(tenants)}
        self._room = room
        self._placement = placement
        self._greatest = greatest_gpus_per_machine
        self._checkpoint_interval_s = checkpoint_interval_s
        self._tenants_apart = tenants_apart
        self._kinds: dict[Kind, int] = {}
        self._eligible: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._shapes: dict[tuple[int, GpuModel], tuple[int, bool]] = {}

    def position_of(self, tenant: TenantId) -> int:
        """The tenant's place by name; raises KeyError for an unknown one."""
        return self._position[tenant]

    def workload_of(self, row: TraceRow, index: int) -> SimulatedWorkload:
        """The workload of a row. `eligible` is empty when no region has the hardware and the data."""
        tasks, consolidate = self._shape_of(row)
        shaped = row if row.tasks is not None or row.gpus == 0 else replace(row, tasks=tasks)
        specification = workload_of_row(shaped, self._greatest)
        if consolidate:
            jobs = tuple(replace(job, consolidate=True) for job in specification.jobs)
            specification = replace(specification, jobs=jobs)
        workload = Workload(row.workload_id, specification, row.submit_s)
        entry = specification.jobs[0].entry_point
        work_s = entry.duration_s if isinstance(entry, Emulated) else row.duration_s
        eligible = self._eligible_for(workload)
        tenant = self._position[specification.tenant]
        shape = tuple((job.tasks, job.resources) for job in specification.jobs)
        return SimulatedWorkload(
            index=index,
            workload=workload,
            tenant=tenant,
            gpus=sum(job.tasks * job.resources.gpus for job in specification.jobs),
            submitted_s=row.submit_s,
            work_s=work_s,
            checkpoint_interval_s=row.checkpoint_s if row.checkpoint_s is not None else self._checkpoint_interval_s,
            kind=self.kind_of(shape, eligible, tenant),
            eligible=eligible,
            charges=quota_charges(specification, self._tenants[tenant].quota),
        )

    def bind(self, work: SimulatedWorkload, region: int) -> None:
        """The workload may run in that region only."""
        work.eligible = (region,)
        shape = tuple((job.tasks, job.resources) for job in work.workload.specification.jobs)
        work.kind = self.kind_of(shape, work.eligible, work.tenant)

    def kind_of(self, shape: tuple[tuple[int, TaskResources], ...], eligible: tuple[int, ...], tenant: int) -> int:
        """A number for all workloads that ask for the same in the same places."""
        kind = (shape, eligible, tenant if self._tenants_apart else 0)
        return self._kinds.setdefault(kind, len(self._kinds))

    def _shape_of(self, row: TraceRow) -> tuple[int, bool]:
        greatest = self._greatest.get(row.gpu_model) or self._greatest.get(ANY_GPU_MODEL, 0)
        key = (row.gpus, row.gpu_model)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._placement.shape(row.gpus, greatest)
        return shape

    def _eligible_for(self, workload: Workload) -> tuple[int, ...]:
        specification = workload.specification
        tables: tuple[TableInput, ...] = specification.tables
        shape = tuple((job.tasks, job.resources) for job in specification.jobs)
        key = (shape, specification.regions, tables)
        eligible = self._eligible.get(key)
        if eligible is None:
            eligible = self._eligible[key] = self._room.eligible(specification)
        return eligible
