"""What a scan pass sees, and what it decides on it: a snapshot of the database in, a plan out."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

import numpy as np

from domain.identifiers import TenantId, WorkloadId
from domain.tenant import Tenant
from formats.scheduler_file import EstimatesSection
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.scan_view import ScanView
from global_scheduler.service_history import ServiceHistory
from global_scheduler.usage_window import WindowedUse, window_averages
from global_scheduler.view_builder import PendingRows, RunningRows, build_scan_view
from services.database import changed_workload_store, estimate_store, queue_store, tenant_store, usage_store
from services.database.connection import AnyConnection
from services.database.queue_rows import QueueRows
from services.database.queue_store import StoredScanPass
from services.global_scheduler.kept_queue import KeptQueue


@dataclass(frozen=True, slots=True)
class ScanSnapshot:
    """The rows that one pass decides on, all from one moment."""

    now: float
    tenants: tuple[Tenant, ...]
    tenants_revision: int
    use: Mapping[TenantId, WindowedUse]
    pending: PendingRows
    running: RunningRows
    next_due_s: float | None
    """When an entry that waits after a failure comes back; None: there is none."""
    last_pass: StoredScanPass | None
    changes_revision: int = 0
    """Of the last change of a workload."""


@dataclass(frozen=True, slots=True)
class ScanDecision:
    """A view and the plan for it."""

    view: ScanView
    plan: ScanPlan
    tenants: Mapping[TenantId, Tenant]
    tenants_revision: int
    reclassified_charges: Mapping[WorkloadId, tuple[TenantId, Mapping[str, int]]]
    """What the attempts that the plan re-classifies are charged, and to whom; a workload has at most one of them."""
    changes_revision: int = 0
    """Of the last change of a workload that it knows of."""

    def entry_of(self, workload: WorkloadId) -> int | None:
        """The workload's place in the view; None when it was not queued, or had to wait."""
        try:
            return self.view.pending.workloads.index(workload)
        except ValueError:
            return None


async def load_snapshot(
    connection: AnyConnection,
    now: float,
    settings: ScanSettings,
    estimates: EstimatesSection | None = None,
    kept: KeptQueue | None = None,
) -> ScanSnapshot:
    """Everything a pass looks at. The connection's transaction must be a snapshot. `kept`: the queue as the pass before saw it."""
    queue = await (kept or KeptQueue()).rows(connection)
    return ScanSnapshot(
        now=now,
        tenants=await tenant_store.load_tenants(connection),
        tenants_revision=await tenant_store.tenants_revision(connection),
        use=window_averages(
            await usage_store.load_use(connection, now, settings.credit.usage_window_s),
            now,
            settings.credit.usage_window_s,
        ),
        pending=await _pending(connection, queue, now, estimates),
        running=await load_running(connection, now, estimates),
        next_due_s=queue.next_due_s(now),
        last_pass=await queue_store.newest_scan_pass(connection),
        changes_revision=await changed_workload_store.newest_revision(connection),
    )


async def _pending(
    connection: AnyConnection, queue: QueueRows, now: float, estimates: EstimatesSection | None
) -> PendingRows:
    """Those that may be tried, with estimates where they are wanted."""
    rows = await asyncio.to_thread(queue.due, now)
    if estimates is None:
        return rows
    return replace(rows, estimates=await estimate_store.of_pending(connection, now, estimates.assumed_run_s))


async def load_running(connection: AnyConnection, now: float, estimates: EstimatesSection | None) -> RunningRows:
    """The live attempts, with estimates where they are wanted."""
    rows = await queue_store.load_running(connection)
    if estimates is None:
        return rows
    return replace(rows, estimates=await estimate_store.of_running(connection, now, estimates.assumed_run_s))


def decide(
    snapshot: ScanSnapshot,
    settings: ScanSettings,
    service: ServiceHistory | None = None,
    packing: Mapping[WorkloadId, float] | None = None,
) -> ScanDecision:
    """Ranks the whole queue of the snapshot; `service` is that of completed workloads, where a policy goes by it. `packing`
    has a number for each queued workload, where a packing orders the queue: the greatest goes first."""
    view = build_scan_view(snapshot.tenants, snapshot.use, snapshot.running, snapshot.pending, settings, service)
    if packing is not None:
        numbers = [packing[workload] for workload in view.pending.workloads]
        view = replace(view, packing=np.array(numbers, np.float64), checked=False)
    plan = scan_pass(view, snapshot.now)
    return ScanDecision(
        view=view,
        plan=plan,
        tenants={tenant.tenant: tenant for tenant in snapshot.tenants},
        tenants_revision=snapshot.tenants_revision,
        reclassified_charges=_charges_of(snapshot.running, {change.key.workload for change in plan.reclassifications}),
        changes_revision=snapshot.changes_revision,
    )


def _charges_of(
    running: RunningRows, workloads: Container[WorkloadId]
) -> Mapping[WorkloadId, tuple[TenantId, Mapping[str, int]]]:
    return {
        workload: (tenant, charges)
        for workload, tenant, charges in zip(running.workloads, running.tenants, running.charges, strict=True)
        if workload in workloads
    }
