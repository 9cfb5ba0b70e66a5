"""Everything that is decided on, at one moment: queue, running attempts, attained service, use, fleet, tenants, tables.

A snapshot is a value: taken from a live service in one transaction or read from a file, and where a simulation may
begin. All times are seconds since the epoch on the clock of the service that it was taken from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from domain.cells import CellUse
from domain.events import EvictionCause
from domain.fleet import Fleet, MachineState
from domain.identifiers import JobName, MachineId, RegionId, TenantId
from domain.iteration_times import RanOn, Sums
from domain.life_cycle import State
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import QueuePosition, Standing
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import Workload


@dataclass(frozen=True, slots=True)
class ServiceSoFar:
    """What attempts that are over came to."""

    attempts: int = 0
    """How many there were; the number of the newest."""
    failures: int = 0
    """How many of them count as failures of the workload's own."""
    checkpoint_progress: float = 0.0
    """What is kept of their work, in the workload's own unit: seconds of work when it is emulated."""
    attained_s: float = 0.0
    """Seconds that they ran."""
    attained_gpu_s: float = 0.0
    """GPU-seconds that they received while they ran."""
    before_promotion_s: float = 0.0
    """Of `attained_s`, what was before the workload was promoted last, and counts no more for its level."""
    before_promotion_gpu_s: float = 0.0
    """Of `attained_gpu_s`, likewise."""
    first_started_s: float | None = None
    """When the first of them that started did; None: none did."""


@dataclass(frozen=True, slots=True)
class QueuedWorkload:
    """One that waits."""

    workload: Workload
    state: State
    """PENDING, WAITING or AWAITING_DATA."""
    queued_since_s: float
    """Its submission, or the end of its last attempt."""
    so_far: ServiceSoFar = ServiceSoFar()
    position: QueuePosition | None = None
    """Where the last scan pass put it; None: no pass has seen it yet."""
    not_before_s: float = 0.0
    """After a failure it waits until then; before, no pass ranks it."""
    preempted_s: tuple[float, ...] = ()
    """When attempts of it were asked to leave for others, ascending: those of the last hour."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """Why an attempt was asked to stop; when it was preempted, for which attempt and at what standing of that."""

    cause: EvictionCause
    by: AttemptKey | None = None
    by_standing: Standing | None = None


@dataclass(frozen=True, slots=True)
class AttemptSoFar:
    """What a running attempt had come to when it was changed last, by a resize, a retune or an order to leave."""

    to_s: float
    """When that was."""
    progress: float
    """As in `RunningAttempt`."""
    gpu_s: float
    """GPU-seconds that it had received since it started."""


@dataclass(frozen=True, slots=True)
class NextPlace:
    """Where a migrating attempt goes on, as the next one of its workload: the place is kept for it."""

    region: RegionId
    placements: tuple[TaskPlacement, ...]


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt between its dispatch and its end."""

    workload: Workload
    key: AttemptKey
    region: RegionId
    state: State
    """DISPATCHED, RUNNING or PREEMPTING."""
    standing: Standing
    within_quota: bool
    dispatched_s: float
    started_s: float | None
    progress_at_start: float
    progress: float
    """As last reported, in the workload's own unit."""
    checkpoint_progress: float
    placements: tuple[TaskPlacement, ...]
    so_far: ServiceSoFar = ServiceSoFar()
    """Of the attempts before this one."""
    leaving: Leaving | None = None
    """While it is PREEMPTING."""
    changed: AttemptSoFar | None = None
    """None: it has done nothing but run since it started, with the placements of its start."""
    next_place: NextPlace | None = None
    """While it migrates; it may have yet to be asked to leave."""
    guaranteed: bool = True
    """Whether it was within quota when it was dispatched."""
    preempted_s: tuple[float, ...] = ()
    """When attempts of the workload, this one too, were asked to leave for others, ascending: those of the last hour."""
    cells: tuple[tuple[JobName, CellUse], ...] = ()
    """Of its jobs that use cells of a virtual cluster, by name."""


class CompletedService(NamedTuple):
    """What a workload that has completed received."""

    tenant: TenantId
    gpu_s: float


@dataclass(frozen=True, slots=True)
class UseStretch:
    """What a tenant held over a stretch of time, as if evenly."""

    tenant: TenantId
    start_s: float
    end_s: float
    gpu_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment. Workloads and attempts come by (submit time, id), stretches by (tenant, start, end)."""

    taken_s: float
    fleet: Fleet
    tenants: tuple[Tenant, ...]
    machine_states: Mapping[MachineId, MachineState]
    """Of machines that are not up."""
    queue: tuple[QueuedWorkload, ...]
    running: tuple[RunningAttempt, ...]
    use: tuple[UseStretch, ...] = ()
    """Up to `taken_s`, as far back as the usage window reaches; live attempts are part of it until then."""
    tables: tuple[Table, ...] = ()
    """Those of the catalog, by name."""
    completed_service: tuple[CompletedService, ...] = ()
    """In the order in which it was counted: what policies that go by the distribution of service go by."""
    iteration_times: tuple[tuple[RanOn, Sums], ...] = ()
    """What PACKLIMIT is learnt from, sorted."""

    def workloads(self) -> tuple[Workload, ...]:
        """All that have not ended, by (submit time, id)."""
        found = [entry.workload for entry in self.queue] + [attempt.workload for attempt in self.running]
        return tuple(sorted(found, key=lambda workload: (workload.submitted_s, workload.workload)))
