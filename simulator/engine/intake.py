"""Rows of a trace, and workloads as users describe them, become workloads that can be simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from cluster_manager.attempt_run.emulated_work import EmulatedJob
from cluster_manager.skew.consolidation import consolidated, is_sensitive, may_be_consolidated
from cluster_manager.skew.one_machine import OneMachine
from domain.affinity import JobAffinity
from domain.identifiers import ANY_GPU_MODEL, GpuModel, RegionId, TenantId
from domain.resources import TaskResources
from domain.tenant import Tenant, quota_charges
from domain.workload import DEFAULT_STOP_GRACE_S, Emulated, TableInput, Workload, WorkloadSpecification, emulated_work_s
from formats.trace import TraceRow
from formats.trace_workload import workload_of_row
from regional_scheduler.refusals.entries import Scope
from regional_scheduler.run_time_class import run_time_class
from simulator.engine.packlimit import SimulatedPacklimit
from simulator.engine.regions import SimulatedRegions
from simulator.engine.settings import CostSettings, PlacementSettings
from simulator.engine.ways_to_run import LoanedGpus, WayToRun, ways_to_run
from simulator.engine.workloads import NO_REGION, SimulatedWorkload
from simulator.inputs.skews import with_skew
from simulator.policies.placement import GangShape, PlacementPolicy, SkewDecision

JobShapes: TypeAlias = tuple[tuple[int, TaskResources, JobAffinity, bool], ...]
"""What each job asks for: so many tasks, each of which takes so much, and where they must be."""

_DECIDED_LATE = SkewDecision(None, waits=False, decided_late=True)


Ask: TypeAlias = Callable[[WorkloadSpecification], WorkloadSpecification]
ALL_ALIKE = -1
"""In place of the index of a workload, where it does not matter."""


class _Eligible(NamedTuple):
    """Where workloads that ask for the same may run."""

    regions: tuple[int, ...]
    """By position."""
    scopes: tuple[Scope, ...]
    """What the mechanisms there look at beside what is asked for."""
    shape: int | None
    """Of those of one job; None for several jobs: each workload has a shape of its own."""


class Intake:
    """Makes workloads of rows, and knows which are alike."""

    def __init__(
        self,
        tenants: Sequence[Tenant],
        regions: SimulatedRegions,
        placement: PlacementPolicy,
        greatest_gpus_per_machine: Mapping[GpuModel, int],
        costs: CostSettings,
        skew: PlacementSettings,
        packlimit: SimulatedPacklimit,
        *,
        waits_for: OneMachine | None = None,
        tenants_apart: bool,
        trace_regions_bind: bool,
        charged: bool = True,
        ask: Ask,
        loaned: LoanedGpus | None = None,
        estimates: Sequence[float] = (),
        reserves: bool = False,
    ) -> None:
        """`charged`: whether it matters what workloads take of a quota; `waits_for`: see `consolidated`; `ask` says what
        workloads ask for instead of what they say; `loaned`: what is on loan at times; `estimates`: by index, how many
        times as long as it is a workload is taken to be, if any is wrong; `reserves`: whether machines may be kept for gangs."""
        self._ask = ask
        self._charged = charged
        self._loaned = loaned
        self._estimates = estimates
        self._reserves = reserves
        self._timed_shapes: dict[tuple[int, int], int] = {}
        self._tenants = list(tenants)
        self._position = {tenant.tenant: position for position, tenant in enumerate(tenants)}
        self._regions = regions
        self._placement = placement
        self._skew = skew
        self._draws_skews = skew.draw_skews
        self._packlimit = packlimit
        self._decides_late = skew.trial_s is not None or packlimit.learns
        self._waits_for = waits_for
        self._greatest = greatest_gpus_per_machine
        self._checkpoint_interval_s = costs.checkpoint_interval_s
        # No trace says how long its workloads get for that: they get the time that saving takes.
        self._stop_grace_s = max(DEFAULT_STOP_GRACE_S, costs.checkpoint_save_s)
        self._tenants_apart = tenants_apart
        self._trace_regions_bind = trace_regions_bind
        self._region_position = {member.region: position for position, member in enumerate(regions.members)}
        self._shape_numbers: dict[tuple[JobShapes, tuple[int, ...], tuple[Scope, ...], int], int] = {}
        self._kinds: dict[tuple[int, int], int] = {}
        self._eligible: dict[tuple[object, ...], _Eligible] = {}
        self._scopes: dict[tuple[JobShapes, TenantId, int], tuple[Scope, ...]] = {}
        self._shapes: dict[tuple[int, GpuModel, bool | None], GangShape] = {}

    def workload_of(self, what: TraceRow | Workload, index: int) -> SimulatedWorkload:
        """The workload of a row, or one as it was described. `eligible` is empty when no region has the hardware and
        the data."""
        if isinstance(what, Workload):
            return self.workload_as_described(what, index, emulated_work_s(what.specification) or 0.0)
        row = with_skew(what) if self._draws_skews else what
        shape = self._shape_of(row)
        # What is decided when it comes to the queue is so only where the policy heeds the skew.
        decided_late = self._decides_late and (shape.consolidate or shape.fills)
        if decided_late:
            shape = self._placement.shape(row.gpus, self._greatest_of(row), _DECIDED_LATE)
        specification = workload_of_row(
            row,
            self._greatest,
            tasks=shape.tasks if row.gpus else None,
            anywhere=not self._trace_regions_bind,
            stop_grace_s=self._stop_grace_s,
        )
        specification = self._asking_for(row.priority, specification)
        if shape.consolidate or shape.fills:
            jobs = tuple(
                replace(job, consolidate=shape.consolidate, fills_fragments=shape.fills) for job in specification.jobs
            )
            specification = replace(specification, jobs=jobs)
        specification = self._ask(specification)
        entry = specification.jobs[0].entry_point
        workload = Workload(row.workload_id, specification, row.submit_s)
        work = self._simulated(
            workload,
            index,
            ways=ways_to_run(row, workload, self._loaned),
            work_s=entry.duration_s if isinstance(entry, Emulated) else row.duration_s,
            checkpoint_interval_s=row.checkpoint_s if row.checkpoint_s is not None else self._checkpoint_interval_s,
            own_region=row.region,
        )
        if decided_late and may_be_consolidated(specification.jobs[0]):
            work.as_submitted, work.on_trial = specification, self._skew.trial_s is not None
        return work

    def decide(self, work: SimulatedWorkload) -> None:
        """A workload that is decided late, and whose skew is known by now, is as consolidated from now on as that says."""
        if work.as_submitted is None:
            return
        work.on_trial = False
        placed = consolidated(work.as_submitted, {}, self._packlimit.limit, self._waits_for)
        if placed is not work.workload.specification:
            work.workload = replace(work.workload, specification=placed)
            scopes = self._regions.scopes(placed, work.eligible)
            shape = self._shape_number(_asked(work.workload), work.eligible, scopes, work.index)
            work.shape = self._by_run_time(shape, placed)
            work.kind = self._kind_of(work.shape, work.tenant)

    def workload_as_described(self, workload: Workload, index: int, work_s: float) -> SimulatedWorkload:
        """A workload cut into jobs and tasks already, of so many seconds of work; all its jobs are emulated."""
        described = self._ask(self._asking_for(workload.specification.priority, workload.specification))
        placed = consolidated(described, {}, self._packlimit.limit, self._waits_for)
        if placed is not workload.specification:
            workload = replace(workload, specification=placed)
        jobs = tuple(
            EmulatedJob(job.entry_point.duration_s, job.entry_point.checkpoint_interval_s)
            for job in workload.specification.jobs
            if isinstance(job.entry_point, Emulated)
        )
        own = workload.specification.regions[0] if len(workload.specification.regions) == 1 else None
        work = self._simulated(
            workload, index, work_s=work_s, checkpoint_interval_s=jobs[0].checkpoint_interval_s, own_region=own
        )
        work.jobs = jobs if len(jobs) > 1 else ()
        if self._packlimit.learns and any(job.profile and may_be_consolidated(job) for job in described.jobs):
            work.as_submitted = described
        return work

    def _asking_for(self, priority: int | None, specification: WorkloadSpecification) -> WorkloadSpecification:
        """With that priority, where its tenant has a further quota there: traces name priorities, and some policies know none."""
        owner = self._tenants[self._position[specification.tenant]]
        further = owner.further_quotas
        asked = priority if further and any(priority == at for at, _ in further) else None
        return specification if specification.priority == asked else replace(specification, priority=asked)

    def _simulated(
        self,
        workload: Workload,
        index: int,
        *,
        work_s: float,
        checkpoint_interval_s: float,
        own_region: RegionId | None,
        ways: tuple[WayToRun, ...] = (),
    ) -> SimulatedWorkload:
        specification = workload.specification
        tenant = self._position[specification.tenant]
        eligible, shape = self._place(workload, index, ways)
        return SimulatedWorkload(
            index=index,
            workload=workload,
            tenant=tenant,
            base_gpus=specification.base_gpus,
            ways=ways,
            submitted_s=workload.submitted_s,
            work_s=work_s,
            estimate=self._estimates[index] if self._estimates else 1.0,
            checkpoint_interval_s=checkpoint_interval_s,
            kind=self._kind_of(shape, tenant),
            shape=shape,
            own_region=NO_REGION if own_region is None else self._region_position.get(own_region, NO_REGION),
            eligible=eligible,
            charges=quota_charges(specification, self._tenants[tenant]) if self._charged else {},
            quota_priority=self._tenants[tenant].priority_of(specification.priority),
        )

    def _place(self, workload: Workload, index: int, ways: Sequence[WayToRun]) -> tuple[tuple[int, ...], int]:
        """Where it may run, and its shape."""
        asked = _asked(workload)
        eligible, scopes, shape = self._eligible_for(workload, asked)
        if shape is None:
            shape = self._shape_number(asked, eligible, scopes, index)
        elif ways:
            # Alike are those alone that may run in the same ways, each of which is one job.
            alike = all(len(way.workload.specification.jobs) == 1 for way in ways)
            asked = tuple([shape for way in ways for shape in _asked(way.workload)])
            shape = self._shape_number(asked, eligible, scopes, ALL_ALIKE if alike else index)
        return eligible, self._by_run_time(shape, workload.specification)

    def tables_moved(self) -> None:
        """Where workloads with tables may run is worked out anew."""
        self._eligible.clear()

    def place_anew(self, work: SimulatedWorkload) -> None:
        """The workload may run where it could now, as if it had just been submitted."""
        work.eligible, work.shape = self._place(work.workload, work.index, work.ways)
        work.kind = self._kind_of(work.shape, work.tenant)

    def bind(self, work: SimulatedWorkload, region: int) -> None:
        """The workload may run in that region only."""
        work.eligible = (region,)
        asked, specification = _asked(work.workload), work.workload.specification
        key = asked, specification.tenant, region
        scopes = self._scopes.get(key)
        if scopes is None:
            scopes = self._scopes[key] = self._regions.scopes(specification, work.eligible)
        work.shape = self._by_run_time(self._shape_number(asked, work.eligible, scopes, work.index), specification)
        work.kind = self._kind_of(work.shape, work.tenant)

    def _by_run_time(self, shape: int, specification: WorkloadSpecification) -> int:
        """Where machines may be kept for others, shapes differ by the class of the run time too: the shorter may start there."""
        if not self._reserves:
            return shape
        timed = shape, run_time_class(specification)
        return self._timed_shapes.setdefault(timed, len(self._timed_shapes))

    def _shape_number(self, asked: JobShapes, eligible: tuple[int, ...], scopes: tuple[Scope, ...], index: int) -> int:
        """A number for all workloads of one job that ask for the same in the same places: when one finds nothing, the
        others find nothing either, while capacity only shrinks. `scopes` are what mechanisms look at beside that.

        That does not hold for several jobs: where they are put together depends on the order in which the planner
        tries them, so that they may fit where there is less. Each such workload has a number of its own.
        """
        alike = (asked, eligible, scopes, 0 if len(asked) == 1 or index == ALL_ALIKE else index + 1)
        return self._shape_numbers.setdefault(alike, len(self._shape_numbers))

    def _kind_of(self, shape: int, tenant: int) -> int:
        """The same, by tenant where tenants are kept apart."""
        return self._kinds.setdefault((shape, tenant), len(self._kinds)) if self._tenants_apart else shape

    def _shape_of(self, row: TraceRow) -> GangShape:
        sensitive = None if row.skew is None else is_sensitive(row.skew, self._packlimit.limit)
        key = (row.gpus, row.gpu_model, sensitive)
        shape = self._shapes.get(key)
        if shape is None:
            decision = SkewDecision(sensitive, self._skew.wait_for_consolidation)
            shape = self._shapes[key] = self._placement.shape(row.gpus, self._greatest_of(row), decision)
        return shape

    def _greatest_of(self, row: TraceRow) -> int:
        return self._greatest.get(row.gpu_model) or self._greatest.get(ANY_GPU_MODEL, 0)

    def _eligible_for(self, workload: Workload, asked: JobShapes) -> _Eligible:
        """Where it may run, as all that ask for the same may."""
        specification = workload.specification
        tables: tuple[TableInput, ...] = specification.tables
        key = (asked, specification.regions, tables, specification.tenant)
        found = self._eligible.get(key)
        if found is None:
            eligible = self._regions.eligible(specification)
            scopes = self._regions.scopes(specification, eligible)
            shape = self._shape_number(asked, eligible, scopes, 0) if len(asked) == 1 else None
            found = self._eligible[key] = _Eligible(eligible, scopes, shape)
        return found


def _asked(workload: Workload) -> JobShapes:
    return tuple([(job.tasks, job.resources, job.affinity, job.across_clusters) for job in workload.specification.jobs])
