"""Tenants for a trace that comes without a tenants.yaml."""

from __future__ import annotations

from collections.abc import Iterable

from domain.identifiers import ANY_GPU_MODEL, TenantId
from domain.resources import Quota
from domain.tenant import Tenant
from formats.tenants_file import GREATEST_QUOTA_GPUS
from formats.trace import TraceRow

MIDDLE_PRIORITY = 3
"""Between 0 and 6; more than half of MAST's workloads have it (§5.1)."""


def tenants_of_trace(
    rows: Iterable[TraceRow], fleet_gpus: int, *, default_priority: int = MIDDLE_PRIORITY
) -> tuple[Tenant, ...]:
    """One tenant per tenant of the trace, sorted by name.

    The rule: its quota is its share of the fleet by the GPU-seconds it submits, rounded, but at least its largest job
    (or else that job could never run within quota) and at most the fleet; any GPU model counts. So the quotas may add
    up to more than the fleet. CPUs are not limited. Its priority is the one that most of its rows have (of two equally
    common ones the more important), or `default_priority` when none has any.
    """
    accounts = _accounts(rows)
    total = sum(account.gpu_seconds for account in accounts.values())
    return tuple(
        Tenant(
            name,
            account.priority(default_priority),
            Quota.of({ANY_GPU_MODEL: account.quota_gpus(total, fleet_gpus)}),
        )
        for name, account in sorted(accounts.items())
    )


def unlimited_tenants(
    rows: Iterable[TraceRow], *, default_priority: int = MIDDLE_PRIORITY, priorities: bool = False
) -> tuple[Tenant, ...]:
    """The same tenants with quotas that nothing reaches, for policies that know no quota.

    All have `default_priority`, unless `priorities` asks for those of the rows as in `tenants_of_trace`.
    """
    quota = Quota.of({ANY_GPU_MODEL: GREATEST_QUOTA_GPUS})
    return tuple(
        Tenant(name, account.priority(default_priority) if priorities else default_priority, quota)
        for name, account in sorted(_accounts(rows).items())
    )


class _Account:
    """What a tenant of a trace asks for in all."""

    __slots__ = ("gpu_seconds", "largest_gpus", "rows_by_priority")

    def __init__(self) -> None:
        self.gpu_seconds = 0.0
        self.largest_gpus = 0
        self.rows_by_priority: dict[int, int] = {}

    def add(self, row: TraceRow) -> None:
        self.gpu_seconds += row.gpus * row.duration_s
        self.largest_gpus = max(self.largest_gpus, row.gpus)
        if row.priority is not None:
            self.rows_by_priority[row.priority] = self.rows_by_priority.get(row.priority, 0) + 1

    def priority(self, otherwise: int) -> int:
        counted = self.rows_by_priority
        return min(counted, key=lambda priority: (-counted[priority], priority)) if counted else otherwise

    def quota_gpus(self, all_gpu_seconds: float, fleet_gpus: int) -> int:
        share = self.gpu_seconds / all_gpu_seconds if all_gpu_seconds > 0 else 0.0
        return min(fleet_gpus, max(self.largest_gpus, round(share * fleet_gpus)))


def _accounts(rows: Iterable[TraceRow]) -> dict[TenantId, _Account]:
    accounts: dict[TenantId, _Account] = {}
    for row in rows:
        account = accounts.get(row.tenant)
        if account is None:
            account = accounts[row.tenant] = _Account()
        account.add(row)
    return accounts
