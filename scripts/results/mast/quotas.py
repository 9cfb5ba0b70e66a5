"""Quotas that capacity backs: all tenants can use theirs at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from domain.identifiers import ANY_GPU_MODEL
from domain.resources import Quota
from domain.tenant import Tenant
from formats.trace import TraceRow

NOT_BACKED = "as drawn"
"""As `tenants_of_trace` has them: they may add up to more than the fleet."""
BACKED = "backed by capacity"


def gpus_of_quota(tenant: Tenant) -> int:
    """GPUs of all models."""
    return sum(amount for _, amount in tenant.quota.gpus)


def backed_by(fleet_gpus: int, tenants: Sequence[Tenant]) -> tuple[Tenant, ...]:
    """The same tenants with quotas in proportion to theirs that add up to the fleet.

    Whole GPUs: rounded down, and those with the largest remainders get one more; of equal ones the first by name.
    A job that is larger than its tenant's quota then always runs over quota.
    """
    total = sum(gpus_of_quota(tenant) for tenant in tenants)
    whole = {tenant.tenant: divmod(gpus_of_quota(tenant) * fleet_gpus, total) for tenant in tenants}
    missing = fleet_gpus - sum(gpus for gpus, _ in whole.values())
    by_remainder = sorted(whole, key=lambda name: (-whole[name][1], name))
    more = frozenset(by_remainder[:missing])
    return tuple(
        replace(tenant, quota=Quota.of({ANY_GPU_MODEL: whole[tenant.tenant][0] + (tenant.tenant in more)}))
        for tenant in tenants
    )


def larger_than_quota(rows: Sequence[TraceRow], tenants: Sequence[Tenant]) -> int:
    """Workloads that can never run within quota."""
    quotas = {tenant.tenant: gpus_of_quota(tenant) for tenant in tenants}
    return sum(row.gpus > quotas[row.tenant] for row in rows)
