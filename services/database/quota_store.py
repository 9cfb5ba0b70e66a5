"""Within-quota use in force, by tenant and bucket: the guard that no sum of decisions can get past (I4).

Everything is changed in the transaction that changes the attempts. Rows are locked in the order of (tenant, bucket),
so that two regions that dispatch at the same time wait for each other and never block each other for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from domain.identifiers import TenantId
from services.database.connection import AnyConnection

Bucket = tuple[TenantId, str]


async def charge(
    connection: AnyConnection,
    wanted: Sequence[tuple[TenantId, Mapping[str, int]]],
    limits: Mapping[TenantId, Mapping[str, int]],
) -> list[bool]:
    """Charges, one after the other, what fits into its tenant's quota; returns for each whether it did.

    Limits are those of `domain.tenant.quota_limits`: a bucket without one is 0.
    """
    in_use = await lock(connection, [(tenant, bucket) for tenant, charges in wanted for bucket in charges])
    changed: dict[Bucket, int] = {}
    fits = []
    for tenant, charges in wanted:
        limit = limits[tenant]
        fit = all(in_use[tenant, bucket] + amount <= limit.get(bucket, 0) for bucket, amount in charges.items())
        fits.append(fit)
        if fit:
            _add(in_use, changed, tenant, charges, 1)
    await _store(connection, in_use, changed)
    return fits


async def release(connection: AnyConnection, returned: Sequence[tuple[TenantId, Mapping[str, int]]]) -> None:
    """Gives back what ended (or never started)."""
    in_use = await lock(connection, [(tenant, bucket) for tenant, charges in returned for bucket in charges])
    changed: dict[Bucket, int] = {}
    for tenant, charges in returned:
        _add(in_use, changed, tenant, charges, -1)
    await _store(connection, in_use, changed)


def _add(
    in_use: dict[Bucket, int],
    changed: dict[Bucket, int],
    tenant: TenantId,
    charges: Mapping[str, int],
    sign: int,
) -> None:
    for bucket, amount in charges.items():
        in_use[tenant, bucket] += sign * amount
        changed[tenant, bucket] = in_use[tenant, bucket]


async def lock(connection: AnyConnection, buckets: Sequence[Bucket]) -> dict[Bucket, int]:
    """Locks these rows, making those that are missing; returns what is in use."""
    ordered = sorted(set(buckets))
    if not ordered:
        return {}
    tenants = [tenant for tenant, _ in ordered]
    names = [bucket for _, bucket in ordered]
    await connection.execute(
        """INSERT INTO quota_use (tenant, bucket, amount)
           SELECT tenant, bucket, 0 FROM unnest(%s::text[], %s::text[]) AS u (tenant, bucket) ORDER BY tenant, bucket
           ON CONFLICT DO NOTHING""",
        (tenants, names),
    )
    cursor = await connection.execute(
        """SELECT q.tenant, q.bucket, q.amount
             FROM quota_use q JOIN unnest(%s::text[], %s::text[]) AS u (tenant, bucket) USING (tenant, bucket)
            ORDER BY q.tenant, q.bucket FOR UPDATE OF q""",
        (tenants, names),
    )
    return {(TenantId(row[0]), row[1]): row[2] for row in await cursor.fetchall()}


async def _store(connection: AnyConnection, in_use: Mapping[Bucket, int], changed: Mapping[Bucket, int]) -> None:
    if changed:
        await connection.execute(
            """UPDATE quota_use q SET amount = u.amount
                 FROM unnest(%s::text[], %s::text[], %s::bigint[]) AS u (tenant, bucket, amount)
                WHERE q.tenant = u.tenant AND q.bucket = u.bucket""",
            (
                [tenant for tenant, _ in changed],
                [bucket for _, bucket in changed],
                [in_use[bucket] for bucket in changed],
            ),
        )
