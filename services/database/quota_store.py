"""Within-quota use in force, by tenant and bucket: the guard that no sum of decisions can get past (I4).

Everything is changed in the transaction that changes the attempts. Rows are locked in the order of (tenant, bucket),
so that two regions that dispatch at the same time wait for each other and never block each other for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.identifiers import TenantId
from services.database.connection import AnyConnection, AnyCursor

Bucket = tuple[TenantId, str]


async def charge(
    connection: AnyConnection,
    wanted: Sequence[tuple[TenantId, Mapping[str, int]]],
    limits: Mapping[TenantId, Mapping[str, int]],
) -> list[bool]:
    """Charges, one after the other, what fits into its tenant's quota; returns for each whether it did.

    Limits are those of `domain.tenant.quota_limits`: a bucket without one is 0.
    """
    return await charge_locked(connection, await send_lock(connection, buckets_of(wanted)), wanted, limits)


async def charge_locked(
    connection: AnyConnection,
    locked: LockedQuota,
    wanted: Sequence[tuple[TenantId, Mapping[str, int]]],
    limits: Mapping[TenantId, Mapping[str, int]],
) -> list[bool]:
    """The same where their buckets have been locked before."""
    in_use = await locked.in_use()
    fits, changed = _charged(in_use, wanted, limits)
    await _store(connection, in_use, changed)
    return fits


async def would_fit(
    connection: AnyConnection,
    wanted: Sequence[tuple[TenantId, Mapping[str, int]]],
    limits: Mapping[TenantId, Mapping[str, int]],
) -> list[bool]:
    """What `charge` would return now. Nothing is locked: before it is charged, it may be otherwise."""
    ordered = sorted(set(buckets_of(wanted)))
    in_use = dict.fromkeys(ordered, 0)
    if ordered:
        cursor = await connection.execute(
            """SELECT q.tenant, q.bucket, q.amount
                 FROM quota_use q JOIN unnest(%s::text[], %s::text[]) AS u (tenant, bucket) USING (tenant, bucket)""",
            ([tenant for tenant, _ in ordered], [bucket for _, bucket in ordered]),
        )
        in_use |= {(TenantId(row[0]), row[1]): row[2] for row in await cursor.fetchall()}
    return _charged(in_use, wanted, limits)[0]


def buckets_of(wanted: Sequence[tuple[TenantId, Mapping[str, int]]]) -> list[Bucket]:
    """What these charges are charged to."""
    return [(tenant, bucket) for tenant, charges in wanted for bucket in charges]


def _charged(
    in_use: dict[Bucket, int],
    wanted: Sequence[tuple[TenantId, Mapping[str, int]]],
    limits: Mapping[TenantId, Mapping[str, int]],
) -> tuple[list[bool], dict[Bucket, int]]:
    """Which of these fit, one after the other, and what is in use then of what has changed; `in_use` is changed too."""
    changed: dict[Bucket, int] = {}
    fits = []
    for tenant, charges in wanted:
        limit = limits[tenant]
        fit = all(in_use[tenant, bucket] + amount <= limit.get(bucket, 0) for bucket, amount in charges.items())
        fits.append(fit)
        if fit:
            _add(in_use, changed, tenant, charges, 1)
    return fits, changed


async def release(connection: AnyConnection, returned: Sequence[tuple[TenantId, Mapping[str, int]]]) -> None:
    """Gives back what ended (or never started)."""
    in_use = await lock(connection, buckets_of(returned))
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
    return await (await send_lock(connection, buckets)).in_use()


@dataclass(frozen=True, slots=True)
class LockedQuota:
    """Rows that are locked, as soon as the server has come to it; what is in them is read later."""

    _cursor: AnyCursor | None

    async def in_use(self) -> dict[Bucket, int]:
        """What is in use in them."""
        if self._cursor is None:
            return {}
        return {(TenantId(row[0]), row[1]): row[2] for row in await self._cursor.fetchall()}


async def send_lock(connection: AnyConnection, buckets: Sequence[Bucket]) -> LockedQuota:
    """The same without waiting for it in a pipeline: other statements can be sent meanwhile."""
    ordered = sorted(set(buckets))
    if not ordered:
        return LockedQuota(None)
    tenants = [tenant for tenant, _ in ordered]
    names = [bucket for _, bucket in ordered]
    await connection.execute(
        """INSERT INTO quota_use (tenant, bucket, amount)
           SELECT tenant, bucket, 0 FROM unnest(%s::text[], %s::text[]) AS u (tenant, bucket) ORDER BY tenant, bucket
           ON CONFLICT DO NOTHING""",
        (tenants, names),
    )
    return LockedQuota(
        await connection.execute(
            """SELECT q.tenant, q.bucket, q.amount
                 FROM quota_use q JOIN unnest(%s::text[], %s::text[]) AS u (tenant, bucket) USING (tenant, bucket)
                ORDER BY q.tenant, q.bucket FOR UPDATE OF q""",
            (tenants, names),
        )
    )


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
