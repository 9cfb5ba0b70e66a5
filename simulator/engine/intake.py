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
from simulator.engine.workloads import NO_REGION, SimulatedWorkload
from simulator.policies.placement import PlacementPolicy

JobShapes: TypeAlias = tuple[tuple[int, TaskResources], ...]
"""What each job asks for: so many tasks, each of which takes so much."""


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
        trace_regions_bind: bool,
        charged: bool = True,
    ) -> None:
        """`charged`: whether anybody asks what workloads take of a quota."""
        self._charged = charged
        self._tenants = list(tenants)
        self._position = {tenant.tenant: position for position, tenant in enumerate(tenants)}
        self._room = room
        self._placement = placement
        self._greatest = greatest_gpus_per_machine
        self._checkpoint_interval_s = checkpoint_interval_s
        self._tenants_apart = tenants_apart
        self._trace_regions_bind = trace_regions_bind
        self._region_position = {desk.region: position for position, desk in enumerate(room.desks)}
        self._shape_numbers: dict[tuple[JobShapes, tuple[int, ...]], int] = {}
        self._kinds: dict[tuple[int, int], int] = {}
        self._eligible: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._shapes: dict[tuple[int, GpuModel], tuple[int, bool]] = {}

    def position_of(self, tenant: TenantId) -> int:
        """The tenant's place by name; raises KeyError for an unknown one."""
        return self._position[tenant]

    def workload_of(self, row: TraceRow, index: int) -> SimulatedWorkload:
        """The workload of a row. `eligible` is empty when no region has the hardware and the data."""
        tasks, consolidate = self._shape_of(row)
        specification = workload_of_row(
            row, self._greatest, tasks=tasks if row.gpus else None, anywhere=not self._trace_regions_bind
        )
        if consolidate:
            jobs = tuple(replace(job, consolidate=True) for job in specification.jobs)
            specification = replace(specification, jobs=jobs)
        workload = Workload(row.workload_id, specification, row.submit_s)
        entry = specification.jobs[0].entry_point
        work_s = entry.duration_s if isinstance(entry, Emulated) else row.duration_s
        eligible = self._eligible_for(workload)
        tenant = self._position[specification.tenant]
        shape = self._shape_number(tuple((job.tasks, job.resources) for job in specification.jobs), eligible)
        return SimulatedWorkload(
            index=index,
            workload=workload,
            tenant=tenant,
            gpus=sum([job.tasks * job.resources.gpus for job in specification.jobs]),
            submitted_s=row.submit_s,
            work_s=work_s,
            checkpoint_interval_s=row.checkpoint_s if row.checkpoint_s is not None else self._checkpoint_interval_s,
            kind=self._kind_of(shape, tenant),
            shape=shape,
            own_region=NO_REGION if row.region is None else self._region_position.get(row.region, NO_REGION),
            eligible=eligible,
            charges=quota_charges(specification, self._tenants[tenant].quota) if self._charged else {},
        )

    def bind(self, work: SimulatedWorkload, region: int) -> None:
        """The workload may run in that region only."""
        work.eligible = (region,)
        asked = tuple((job.tasks, job.resources) for job in work.workload.specification.jobs)
        work.shape = self._shape_number(asked, work.eligible)
        work.kind = self._kind_of(work.shape, work.tenant)

    def _shape_number(self, asked: JobShapes, eligible: tuple[int, ...]) -> int:
        """A number for all workloads that ask for the same in the same places."""
        return self._shape_numbers.setdefault((asked, eligible), len(self._shape_numbers))

    def _kind_of(self, shape: int, tenant: int) -> int:
        """The same, by tenant where tenants are kept apart."""
        return self._kinds.setdefault((shape, tenant), len(self._kinds)) if self._tenants_apart else shape

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
