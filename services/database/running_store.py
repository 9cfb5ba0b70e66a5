"""How many workloads of a tenant run, for tenants that may have so many at most."""

from __future__ import annotations

from collections.abc import Iterable

from domain.identifiers import TenantId
from services.database.connection import AnyConnection

_LOCK_CLASS = 0x72756E6E


async def lock_and_count(connection: AnyConnection, tenants: Iterable[TenantId]) -> dict[TenantId, int]:
    """The live attempts of each of these tenants, of which no other transaction that asks this dispatches any until this one ends."""
    names = sorted(tenants)
    # One statement after the other: what is counted with the lock would be older than the lock where it was waited for.
    await connection.execute(
        """SELECT pg_advisory_xact_lock(%s, hashtext(tenant))
             FROM (SELECT unnest(%s::text[]) AS tenant ORDER BY 1) AS ordered""",
        (_LOCK_CLASS, names),
    )
    cursor = await connection.execute(
        """SELECT tenant, count(*) FROM attempts WHERE ended_s IS NULL AND tenant = ANY(%s) GROUP BY tenant ORDER BY tenant""",
        (names,),
    )
    return dict.fromkeys(names, 0) | {TenantId(tenant): int(count) for tenant, count in await cursor.fetchall()}
