"""The tenants: replaced as a whole, never while one that would disappear still has work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, delete, func, not_, select
from sqlalchemy.dialects.postgresql import aggregate_order_by

from domain.identifiers import GpuModel, TenantId
from domain.life_cycle import ENDED
from domain.resources import Quota
from domain.tenant import Tenant
from formats.problems import listed
from formats.tenants_file import limits_document, limits_from_document, quotas_document, quotas_from_document
from formats.virtual_clusters import virtual_clusters_document, virtual_clusters_from_document
from services.database.channels import FLEET_CHANNEL, SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.core_statements import any_of, execute, insert_rows, upsert_rows
from services.database.lease_store import hold_regions, regions_with_lease
from services.database.revision_store import Subject, load_revision, lock_revision, raise_revision
from services.database.state_guards import in_states
from services.database.tables.tenants import TENANT_QUOTAS, TENANTS
from services.database.tables.workloads import WORKLOADS

_LOCK_KEY = 0x746E616E7473
"""Held exclusively while tenants are replaced, shared while workloads of tenants are inserted."""


class TenantsRefused(Exception):
    """The tenants cannot be replaced by these now; says why."""


async def apply_tenants(connection: AnyConnection, tenants: Sequence[Tenant]) -> int:
    """Replaces all tenants and returns their revision; applying the same ones again changes nothing.

    Raises TenantsRefused while a tenant that would disappear, or a priority at which one would have no quota any more, has
    workloads that have not ended. Names are taken to be unique.
    """
    revision = await lock_revision(connection, Subject.TENANTS)
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK_KEY,))
    wanted = {tenant.tenant: tenant for tenant in tenants}
    stored = {tenant.tenant: tenant for tenant in await load_tenants(connection)}
    gone = sorted(stored.keys() - wanted.keys())
    changed = [tenant for name, tenant in sorted(wanted.items()) if stored.get(name) != tenant]
    if not gone and not changed:
        return revision
    # Regions charge quotas from memory: what they decide with the old ones must not be written any more.
    await hold_regions(connection, await regions_with_lease(connection))
    await _require_ended(connection, gone)
    await _require_quotas_asked_for(connection, changed)
    await execute(connection, delete(TENANTS).where(any_of(TENANTS.c.tenant, gone)))
    await _store(connection, changed)
    wake_after_commit(connection, FLEET_CHANNEL)
    wake_after_commit(connection, SCAN_CHANNEL)
    return await raise_revision(connection, Subject.TENANTS)


async def load_tenants(connection: AnyConnection) -> tuple[Tenant, ...]:
    """All tenants, sorted by name."""

    def in_order(column: Column[Any]) -> ColumnElement[Any]:
        """The quotas' column as an array by GPU model; empty where a tenant has none."""
        return func.array_remove(func.array_agg(aggregate_order_by(column, TENANT_QUOTAS.c.gpu_model)), None)

    cursor = await execute(
        connection,
        select(
            TENANTS.c.tenant,
            TENANTS.c.priority,
            TENANTS.c.cpu_quota,
            TENANTS.c.fair_share_weight,
            TENANTS.c.cells,
            TENANTS.c.further_quotas,
            TENANTS.c.limits,
            in_order(TENANT_QUOTAS.c.gpu_model),
            in_order(TENANT_QUOTAS.c.gpus),
        )
        .select_from(TENANTS.outerjoin(TENANT_QUOTAS))
        .group_by(TENANTS.c.tenant)
        .order_by(TENANTS.c.tenant),
    )
    return tuple(
        Tenant(
            TenantId(tenant),
            priority,
            Quota.of({GpuModel(model): count for model, count in zip(models, gpus, strict=True)}, cpu_quota),
            fair_share_weight,
            virtual_clusters_from_document(cells["virtual_clusters"]),
            quotas_from_document(further["quotas"]) if further["quotas"] else (),
            limits_from_document(limits["limits"]),
        )
        for tenant, priority, cpu_quota, fair_share_weight, cells, further, limits, models, gpus in await cursor.fetchall()
    )


async def tenants_revision(connection: AnyConnection) -> int:
    """Grows with each change of the tenants; 0: none were applied yet."""
    return await load_revision(connection, Subject.TENANTS)


async def keep_tenants(connection: AnyConnection) -> None:
    """Tenants stay as they are until this transaction ends."""
    await connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (_LOCK_KEY,))


async def _require_ended(connection: AnyConnection, gone: Sequence[TenantId]) -> None:
    cursor = await execute(
        connection,
        select(WORKLOADS.c.tenant, func.count())
        .where(any_of(WORKLOADS.c.tenant, gone), not_(in_states(WORKLOADS.c.state, ENDED)))
        .group_by(WORKLOADS.c.tenant)
        .order_by(WORKLOADS.c.tenant),
    )
    rows = await cursor.fetchall()
    if rows:
        named = listed([f"{tenant} ({count})" for tenant, count in rows])
        raise TenantsRefused(
            f"tenants that would disappear have workloads that have not ended: {named}; "
            "cancel them first, or keep the tenants"
        )


async def _require_quotas_asked_for(connection: AnyConnection, changed: Sequence[Tenant]) -> None:
    cursor = await execute(
        connection,
        select(WORKLOADS.c.tenant, WORKLOADS.c.asked_priority, func.count())
        .where(
            any_of(WORKLOADS.c.tenant, [tenant.tenant for tenant in changed]),
            WORKLOADS.c.asked_priority.is_not(None),
            not_(in_states(WORKLOADS.c.state, ENDED)),
        )
        .group_by(WORKLOADS.c.tenant, WORKLOADS.c.asked_priority)
        .order_by(WORKLOADS.c.tenant, WORKLOADS.c.asked_priority),
    )
    kept = {tenant.tenant: tenant.priorities for tenant in changed}
    lacking = [
        f"{tenant} at priority {asked} ({count})"
        for tenant, asked, count in await cursor.fetchall()
        if asked not in kept[TenantId(tenant)]
    ]
    if lacking:
        raise TenantsRefused(
            f"workloads that have not ended ask for quotas that would disappear: {listed(lacking)}; "
            "cancel them first, or keep an empty quota there ({gpus: 0, cpus: 0}), which makes them over-quota"
        )


async def _store(connection: AnyConnection, tenants: Sequence[Tenant]) -> None:
    names = [tenant.tenant for tenant in tenants]
    await execute(
        connection,
        upsert_rows(
            TENANTS,
            ("tenant", "priority", "cpu_quota", "fair_share_weight", "cells", "further_quotas", "limits"),
            [
                (
                    tenant.tenant,
                    tenant.priority,
                    tenant.quota.cpus,
                    tenant.fair_share_weight,
                    {"virtual_clusters": virtual_clusters_document(tenant.virtual_clusters)},
                    {"quotas": quotas_document(tenant.further_quotas)},
                    {"limits": limits_document(tenant.limits)},
                )
                for tenant in tenants
            ],
        ),
    )
    await execute(connection, delete(TENANT_QUOTAS).where(any_of(TENANT_QUOTAS.c.tenant, names)))
    quotas = [(tenant.tenant, model, gpus) for tenant in tenants for model, gpus in tenant.quota.gpus]
    await execute(connection, insert_rows(TENANT_QUOTAS, ("tenant", "gpu_model", "gpus"), quotas))
