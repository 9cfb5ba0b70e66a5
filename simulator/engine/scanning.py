"""Scan passes in a simulation: the snapshot is made from columns that are kept up to date, the pass is the service's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from domain.identifiers import TenantId
from domain.tenant import LOWEST_PRIORITY, Tenant
from global_scheduler.credit import CreditSettings
from global_scheduler.ordering.policy import OrderingPolicy, QueuedWork
from global_scheduler.quota_buckets import QuotaBuckets
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.scan_view import (
    NOT_RANKED,
    DemandColumns,
    PendingColumns,
    RunningColumns,
    ScanView,
    StoredTuples,
    TenantColumns,
)
from simulator.engine.tenant_use import TenantUse
from simulator.engine.workloads import SimulatedWorkload


class Scanner:
    """Holds what a pass needs to know of tenants and of what earlier passes decided."""

    def __init__(
        self, tenants: Sequence[Tenant], ordering: OrderingPolicy, usage_window_s: float, use: TenantUse
    ) -> None:
        listed = list(tenants)
        if [tenant.tenant for tenant in listed] != sorted(tenant.tenant for tenant in listed):
            raise ValueError("tenants must be sorted by name")
        buckets = QuotaBuckets(listed)
        self._buckets = buckets.names
        self._bucket_number = {name: number for number, name in enumerate(buckets.names)}
        self._ids: tuple[TenantId, ...] = tuple(tenant.tenant for tenant in listed)
        self._priority = np.array([tenant.priority for tenant in listed], dtype=np.int8)
        self._quota = buckets.quotas(listed)
        self._weight = np.array([tenant.fair_share_weight for tenant in listed], dtype=np.float64)
        self._use = use
        self._settings = ScanSettings(
            credit=CreditSettings(usage_window_s=usage_window_s),
            ordering=(ordering.name,) * (LOWEST_PRIORITY + 1),
            plugged_in=(ordering,),
        )
        self._stored: dict[int, tuple[int, int, float, bool]] = {}
        """What the last pass that saw it decided: priority, level, credit, within quota; by index."""
        self._demands: dict[int, tuple[tuple[int, int], ...]] = {}

    def scan(
        self,
        pending: Sequence[SimulatedWorkload],
        running: Sequence[SimulatedWorkload],
        levels: Sequence[int],
        now: float,
    ) -> tuple[ScanView, ScanPlan]:
        """One pass. `pending` by index, with the levels at which they wait; `running` are all live attempts."""
        view = ScanView(
            buckets=self._buckets,
            tenants=self._tenant_columns(now),
            running=self._running_columns(running),
            pending=self._pending_columns(pending, levels),
            settings=self._settings,
        )
        plan = scan_pass(view, now)
        return view, plan

    def remember(self, work: SimulatedWorkload, decided: tuple[int, int, float, bool]) -> None:
        """What the queue now holds of an entry."""
        self._stored[work.index] = decided

    def forget(self, work: SimulatedWorkload) -> None:
        """It is in the queue no more."""
        self._stored.pop(work.index, None)

    def remembered(self, work: SimulatedWorkload) -> tuple[int, int, float, bool] | None:
        return self._stored.get(work.index)

    def _tenant_columns(self, now: float) -> TenantColumns:
        return TenantColumns(self._ids, self._priority, self._quota, self._weight, *self._use.averages(now))

    def _pending_columns(self, pending: Sequence[SimulatedWorkload], levels: Sequence[int]) -> PendingColumns:
        nothing = (NOT_RANKED, 0, 0.0, False)
        stored = [self._stored.get(work.index, nothing) for work in pending]
        return PendingColumns(
            workloads=tuple([work.workload.workload for work in pending]),
            tenant=np.array([work.tenant for work in pending], dtype=np.int32),
            submitted_s=np.array([work.submitted_s for work in pending], dtype=np.float64),
            level=np.array(levels, dtype=np.int16),
            demand=self._demand_columns(pending),
            stored=StoredTuples(
                np.array([row[0] for row in stored], dtype=np.int8),
                np.array([row[1] for row in stored], dtype=np.int16),
                np.array([row[2] for row in stored], dtype=np.float64),
                np.array([row[3] for row in stored], dtype=np.bool_),
            ),
            work=QueuedWork(
                np.array([work.gpus for work in pending], dtype=np.float64),
                np.array([work.remaining_s for work in pending], dtype=np.float64),
                np.array([work.attained_gpu_s for work in pending], dtype=np.float64),
                np.array([work.queued_since_s for work in pending], dtype=np.float64),
            ),
        )

    def _running_columns(self, running: Sequence[SimulatedWorkload]) -> RunningColumns:
        ordered = sorted(running, key=lambda work: (work.dispatched_s, work.workload.workload, work.attempts))
        return RunningColumns(
            workloads=tuple([work.workload.workload for work in ordered]),
            attempt=np.array([work.attempts for work in ordered], dtype=np.int32),
            tenant=np.array([work.tenant for work in ordered], dtype=np.int32),
            started_s=np.array([work.dispatched_s for work in ordered], dtype=np.float64),
            priority=np.array([work.standing.priority for work in ordered], dtype=np.int8),
            level=np.array([work.standing.level for work in ordered], dtype=np.int16),
            within_quota=np.array([work.within_quota for work in ordered], dtype=np.bool_),
            leaving=np.array([work.leaves_because is not None for work in ordered], dtype=np.bool_),
            demand=self._demand_columns(ordered),
        )

    def _demand_columns(self, works: Sequence[SimulatedWorkload]) -> DemandColumns:
        demands = [self._demand(work) for work in works]
        return DemandColumns(
            offsets=np.concatenate(([0], np.cumsum([len(demand) for demand in demands], dtype=np.int64))),
            bucket=np.array([bucket for demand in demands for bucket, _ in demand], dtype=np.int16),
            amount=np.array([amount for demand in demands for _, amount in demand], dtype=np.int64),
        )

    def _demand(self, work: SimulatedWorkload) -> tuple[tuple[int, int], ...]:
        demand = self._demands.get(work.index)
        if demand is None:
            numbers = ((self._bucket_number[bucket], amount) for bucket, amount in work.charges.items())
            demand = self._demands[work.index] = tuple(sorted(numbers))
        return demand
