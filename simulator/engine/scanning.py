"""Scan passes in a simulation: the snapshot comes from columns that are kept up to date, the pass is the service's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from domain.identifiers import TenantId
from domain.tenant import LOWEST_PRIORITY, Tenant
from global_scheduler.credit import CreditSettings
from global_scheduler.quota_buckets import QuotaBuckets
from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_settings import QueueRule, ScanSettings
from global_scheduler.scan_view import ScanView, TenantColumns
from global_scheduler.service_history import ServiceHistory
from global_scheduler.view_builder import running_limits
from simulator.engine.columns import WorkloadColumns
from simulator.engine.tenant_use import TenantUse


class Scanner:
    """Ranks the queue. Holds what a pass needs to know of tenants."""

    def __init__(
        self,
        tenants: Sequence[Tenant],
        names: Sequence[str],
        rule: QueueRule,
        credit: CreditSettings,
        use: TenantUse,
        service: ServiceHistory,
        *,
        shares_opportunistic: bool = False,
    ) -> None:
        """`tenants` by name; `names` are the ids of all workloads, by index; `service` is that of completed ones.

        `shares_opportunistic` as in `ScanView`.
        """
        listed = list(tenants)
        if [tenant.tenant for tenant in listed] != sorted(tenant.tenant for tenant in listed):
            raise ValueError("tenants must be sorted by name")
        buckets = QuotaBuckets(listed)
        self._buckets = buckets.names
        self.columns = WorkloadColumns(names, {name: number for number, name in enumerate(buckets.names)})
        self._ids: tuple[TenantId, ...] = tuple(tenant.tenant for tenant in listed)
        self._quota = buckets.quotas(listed)
        self._weight = np.array([tenant.fair_share_weight for tenant in listed], dtype=np.float64)
        self._max_running = running_limits(listed)
        self._use = use
        self._has_lowest_quota = any(tenant.has_lowest_quota for tenant in listed)
        self._service = service
        self._shares_opportunistic = shares_opportunistic
        self._settings = ScanSettings(
            credit=credit,
            rules=(rule,) * (LOWEST_PRIORITY + 1),
        )

    def scan(self, now: float) -> tuple[NDArray[np.int64], ScanPlan]:
        """One pass: the indices of those that wait, ascending, and what is decided on them and on live attempts."""
        pending = self.columns.pending()
        view = ScanView(
            buckets=self._buckets,
            tenants=TenantColumns(
                self._ids, self._quota, self._weight, *self._use.averages(now), self._max_running, checked=False
            ),
            running=self.columns.running_columns(),
            pending=self.columns.pending_columns(pending),
            settings=self._settings,
            service=self._service,
            has_lowest_quota=self._has_lowest_quota,
            shares_opportunistic=self._shares_opportunistic,
            checked=False,
        )
        return pending, scan_pass(view, now)
