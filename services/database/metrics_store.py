"""Counts for metrics: the queue, what runs, hardware, leases, the database itself. Inside the caller's transaction.

Each is one aggregate over a table, or over an index of what is live, and comes back as a few rows however much there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from domain.identifiers import RegionId
from services.database import event_store, fleet_store
from services.database.connection import AnyConnection

UNRANKED: Final = "unranked"
"""The priority of what no scan pass has seen yet."""


class QueueGroup(NamedTuple):
    """Queued workloads that are alike."""

    priority: str
    quota: str
    state: str
    reason: str
    """Why the last auction refused them; `none`: it has not."""
    workloads: int
    gpus: int
    oldest_since_s: float
    """When the first of them was submitted, or left its last attempt."""


class AttemptGroup(NamedTuple):
    region: str
    state: str
    attempts: int


class GpuGroup(NamedTuple):
    """GPUs of machines in a state, or that attempts within or over quota hold."""

    region: str
    cluster: str
    gpu_model: str
    kind: str
    gpus: int


class TierGroup(NamedTuple):
    kind: str
    expected: int
    alive: int


class LeaseNumber(NamedTuple):
    """How often the lease of a tier was taken: by each process that became the tier, and by each of its sessions."""

    tier: str
    token: int


@dataclass(frozen=True, slots=True)
class ObservedState:
    """What there was at one moment."""

    now_s: float
    queue: Sequence[QueueGroup]
    attempts: Sequence[AttemptGroup]
    gpus: Sequence[GpuGroup]
    gpus_in_use: Sequence[GpuGroup]
    tiers: Sequence[TierGroup]
    leases: Sequence[LeaseNumber]
    """Of tiers that the fleet needs and that were there once."""
    lost_clusters: int
    violations: Sequence[tuple[RegionId, int]]
    """Of invariants, by region; regions without any too."""


@dataclass(frozen=True, slots=True)
class DatabaseSize:
    """What the database takes, and who is connected to it."""

    size_bytes: int
    tables: tuple[tuple[str, int], ...]
    """With what each takes, its indexes included."""
    connections: tuple[tuple[str, int], ...]
    """By what they do."""


async def observe(connection: AnyConnection, now_s: float) -> ObservedState:
    """Everything but the size of the database; the connection's transaction must be a snapshot."""
    violations = await event_store.count_violations(connection)
    regions = await fleet_store.region_names(connection)
    return ObservedState(
        now_s=now_s,
        queue=await queue_groups(connection),
        attempts=await attempt_groups(connection),
        gpus=await gpu_groups(connection),
        gpus_in_use=await gpus_in_use(connection),
        tiers=await tier_groups(connection),
        leases=await lease_numbers(connection),
        lost_clusters=await lost_clusters(connection),
        violations=[(region, violations.get(region, 0)) for region in sorted({*regions, *violations})],
    )


async def queue_groups(connection: AnyConnection) -> list[QueueGroup]:
    """The whole queue; reads all of its entries."""
    cursor = await connection.execute(
        """SELECT coalesce(priority::text, %s), CASE WHEN within_quota THEN 'within' ELSE 'over' END, state, coalesce(diagnosis->>'reason', 'none'),
                  count(*), coalesce(sum(gpus), 0)::bigint, min(coalesce(queued_since_s, submitted_s))
             FROM queue_entries GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4""",
        (UNRANKED,),
    )
    return [QueueGroup(*row) for row in await cursor.fetchall()]


async def attempt_groups(connection: AnyConnection) -> list[AttemptGroup]:
    """The live attempts."""
    cursor = await connection.execute(
        "SELECT region, state, count(*) FROM attempts WHERE ended_s IS NULL GROUP BY 1, 2 ORDER BY 1, 2"
    )
    return [AttemptGroup(*row) for row in await cursor.fetchall()]


async def gpu_groups(connection: AnyConnection) -> list[GpuGroup]:
    """The GPUs of all machines, by their state."""
    cursor = await connection.execute(
        """SELECT c.region, c.cluster, m.gpu_model, m.state, sum(m.gpus)::bigint
             FROM machines m JOIN clusters c USING (cluster) WHERE m.gpus > 0
            GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"""
    )
    return [GpuGroup(*row) for row in await cursor.fetchall()]


async def gpus_in_use(connection: AnyConnection) -> list[GpuGroup]:
    """The GPUs that live attempts hold, by whether these are within quota."""
    cursor = await connection.execute(
        """SELECT a.region, p.cluster, m.gpu_model, CASE WHEN a.within_quota THEN 'within' ELSE 'over' END,
                  sum(cardinality(p.gpu_indices))::bigint
             FROM attempts a JOIN placements p USING (workload, attempt) JOIN machines m USING (machine)
            WHERE a.ended_s IS NULL AND cardinality(p.gpu_indices) > 0 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"""
    )
    return [GpuGroup(*row) for row in await cursor.fetchall()]


_NEEDED = """(SELECT 'global' AS kind, 'global' AS lease
              UNION ALL SELECT 'regional', 'regional/' || region FROM regions
              UNION ALL SELECT 'cluster', 'cluster/' || cluster FROM clusters) needed"""
"""The tiers that the fleet needs, and the names of their leases."""


async def tier_groups(connection: AnyConnection) -> list[TierGroup]:
    """How many tiers the fleet needs, and how many of those hold their lease."""
    cursor = await connection.execute(
        f"""SELECT needed.kind, count(needed.lease), count(l.name)
              FROM {_NEEDED} LEFT JOIN leases l ON l.name = needed.lease AND l.expires_at > clock_timestamp()
             GROUP BY 1 ORDER BY 1"""
    )
    return [TierGroup(*row) for row in await cursor.fetchall()]


async def lease_numbers(connection: AnyConnection) -> list[LeaseNumber]:
    """The newest token of each tier that the fleet needs."""
    cursor = await connection.execute(
        f"SELECT l.name, l.token FROM {_NEEDED} JOIN leases l ON l.name = needed.lease ORDER BY 1"
    )
    return [LeaseNumber(*row) for row in await cursor.fetchall()]


async def lost_clusters(connection: AnyConnection) -> int:
    """How many clusters were declared lost and are not back."""
    cursor = await connection.execute("SELECT count(*) FROM lost_clusters")
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def database_size(connection: AnyConnection) -> DatabaseSize:
    """Asks the disk for each file."""
    cursor = await connection.execute("SELECT pg_database_size(current_database())")
    row = await cursor.fetchone()
    cursor = await connection.execute(
        """SELECT relname, pg_total_relation_size(oid) FROM pg_class
            WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY relname"""
    )
    tables = await cursor.fetchall()
    cursor = await connection.execute(
        """SELECT coalesce(state, 'other'), count(*) FROM pg_stat_activity
            WHERE datname = current_database() GROUP BY 1 ORDER BY 1"""
    )
    connections = await cursor.fetchall()
    return DatabaseSize(
        0 if row is None else int(row[0]),
        tuple((name, int(size)) for name, size in tables),
        tuple((state, int(count)) for state, count in connections),
    )
