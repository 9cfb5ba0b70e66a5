"""What tenants use, borrow and wait for at this moment, by quota bucket. Inside the caller's transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.identifiers import TenantId
from services.database.connection import AnyConnection


@dataclass(frozen=True, slots=True)
class BucketUse:
    """Of one quota bucket, in its unit (`domain.tenant.quota_charges`)."""

    within: int
    beyond: int


@dataclass(frozen=True, slots=True)
class LiveUse:
    """What live attempts hold, flexible tasks too."""

    gpus: int = 0
    cpus: float = 0.0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class QueuedUse:
    """What queued workloads of one tenant and asked priority want of one GPU model; CPUs stand with the first model."""

    asked_priority: int | None
    gpu_model: str
    gpus: int
    cpus: float


@dataclass(frozen=True, slots=True)
class QueueLength:
    """How many workloads are queued, and how many of them a scan pass has put beyond quota."""

    queued: int = 0
    over_quota: int = 0


async def charges(connection: AnyConnection, tenants: Sequence[TenantId]) -> Mapping[TenantId, Mapping[str, BucketUse]]:
    """What live attempts are charged, by tenant and bucket."""
    cursor = await connection.execute(
        """SELECT a.tenant, c.bucket, coalesce(sum(c.amount::bigint) FILTER (WHERE a.within_quota), 0)::bigint,
                  coalesce(sum(c.amount::bigint) FILTER (WHERE NOT a.within_quota), 0)::bigint
             FROM attempts a CROSS JOIN LATERAL jsonb_each_text(a.charges) AS c (bucket, amount)
            WHERE a.ended_s IS NULL AND a.tenant = ANY(%s) GROUP BY a.tenant, c.bucket""",
        (list(tenants),),
    )
    found: dict[TenantId, dict[str, BucketUse]] = defaultdict(dict)
    for tenant, bucket, within, beyond in await cursor.fetchall():
        found[TenantId(tenant)][bucket] = BucketUse(within, beyond)
    return found


async def live_use(connection: AnyConnection, tenants: Sequence[TenantId]) -> Mapping[TenantId, LiveUse]:
    """What live attempts hold, by tenant."""
    cursor = await connection.execute(
        """SELECT tenant, sum(gpus)::bigint, sum(cpus), count(*) FROM attempts
            WHERE ended_s IS NULL AND tenant = ANY(%s) GROUP BY tenant""",
        (list(tenants),),
    )
    return {TenantId(row[0]): LiveUse(row[1], row[2], row[3]) for row in await cursor.fetchall()}


async def queued_use(connection: AnyConnection, tenants: Sequence[TenantId]) -> Mapping[TenantId, Sequence[QueuedUse]]:
    """What queued workloads ask for, by tenant."""
    cursor = await connection.execute(
        """SELECT tenant, asked_priority, gpu_model, sum(gpus)::bigint, sum(cpus)
             FROM (SELECT tenant, asked_priority, gpu_model, gpus, cpus FROM queue_entries WHERE tenant = ANY(%(tenants)s)
                   UNION ALL
                   SELECT q.tenant, q.asked_priority, m.model, m.gpus::int, 0
                     FROM queue_entries q CROSS JOIN LATERAL jsonb_each_text(q.more_gpus) AS m (model, gpus)
                    WHERE q.more_gpus IS NOT NULL AND q.tenant = ANY(%(tenants)s)) AS asked
            GROUP BY tenant, asked_priority, gpu_model ORDER BY tenant, asked_priority, gpu_model""",
        {"tenants": list(tenants)},
    )
    found: dict[TenantId, list[QueuedUse]] = defaultdict(list)
    for tenant, *asked in await cursor.fetchall():
        found[TenantId(tenant)].append(QueuedUse(*asked))
    return found


async def queue_lengths(connection: AnyConnection, tenants: Sequence[TenantId]) -> Mapping[TenantId, QueueLength]:
    """How many wait, by tenant."""
    cursor = await connection.execute(
        """SELECT tenant, count(*), count(*) FILTER (WHERE NOT within_quota AND priority IS NOT NULL)
             FROM queue_entries WHERE tenant = ANY(%s) GROUP BY tenant""",
        (list(tenants),),
    )
    return {TenantId(row[0]): QueueLength(row[1], row[2]) for row in await cursor.fetchall()}
