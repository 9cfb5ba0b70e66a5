"""Clusters that are lost: whose manager has held no lease for so long that nothing of theirs runs any more.

Declaring one lost also fences its manager: should it come back, it begins anew under a lease of its own, and what it was
asked before counts no more. Inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.events import Event, EventKind
from domain.identifiers import ClusterId, RegionId
from services.database import event_store
from services.database.channels import REGION_CHANNEL, SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.lease_store import CLUSTER_PREFIX, REGIONAL_PREFIX


@dataclass(frozen=True, slots=True)
class ClusterStanding:
    """What is known of a cluster's manager."""

    cluster: ClusterId
    live: bool
    """It holds its lease."""
    overdue: bool
    """It has held none for so long that no task of the cluster runs any more; also when it never held one."""
    silent_s: float | None
    """For how many real seconds it has held none, negative while it does; None: it never did."""
    lost: str | None
    """Why it was declared lost; None: it was not, or is back."""


async def standings(
    connection: AnyConnection, region: RegionId, tasks_stop_after_s: float, grace_s: float
) -> list[ClusterStanding]:
    """Of all clusters of the region, sorted by name.

    `tasks_stop_after_s` counts where the manager did not say when it took its lease how long its tasks outlive that.
    """
    cursor = await connection.execute(
        """SELECT c.cluster, coalesce(l.expires_at > clock_timestamp(), false),
                  coalesce(l.expires_at + make_interval(secs => coalesce(l.tasks_stop_after_s, %s) + %s)
                           <= clock_timestamp(), true),
                  extract(epoch FROM clock_timestamp() - l.expires_at)::float8, x.reason
             FROM clusters c LEFT JOIN leases l ON l.name = %s || c.cluster LEFT JOIN lost_clusters x USING (cluster)
            WHERE c.region = %s ORDER BY c.cluster""",
        (tasks_stop_after_s, grace_s, CLUSTER_PREFIX, region),
    )
    return [ClusterStanding(ClusterId(row[0]), *row[1:]) for row in await cursor.fetchall()]


async def fence_if_silent(
    connection: AnyConnection, cluster: ClusterId, tasks_stop_after_s: float, grace_s: float
) -> bool:
    """Fences the cluster's manager if it is overdue at this moment, as `standings` has it; False when it is not."""
    cursor = await connection.execute(
        """UPDATE leases SET token = token + 1, holder = ''
            WHERE name = %s AND expires_at + make_interval(secs => coalesce(tasks_stop_after_s, %s) + %s)
                            <= clock_timestamp()""",
        (f"{CLUSTER_PREFIX}{cluster}", tasks_stop_after_s, grace_s),
    )
    if cursor.rowcount == 1:
        return True
    cursor = await connection.execute("SELECT 1 FROM leases WHERE name = %s", (f"{CLUSTER_PREFIX}{cluster}",))
    return await cursor.fetchone() is None


async def fence(connection: AnyConnection, clusters: Sequence[ClusterId]) -> None:
    """Ends the leases of these clusters' managers at once, whatever they do."""
    await connection.execute(
        """UPDATE leases SET token = token + 1, holder = '', expires_at = least(expires_at, clock_timestamp())
            WHERE name IN (SELECT name FROM leases WHERE name = ANY(%s) ORDER BY name FOR NO KEY UPDATE)""",
        ([f"{CLUSTER_PREFIX}{cluster}" for cluster in clusters],),
    )


async def declare(
    connection: AnyConnection, region: RegionId, clusters: Sequence[ClusterId], reason: str, now: float
) -> list[ClusterId]:
    """These clusters are lost from now on; returns those that were not yet, sorted. Each gets its event."""
    cursor = await connection.execute(
        """INSERT INTO lost_clusters (cluster, declared_s, reason) SELECT cluster, %s, %s FROM unnest(%s::text[]) AS cluster
           ON CONFLICT DO NOTHING RETURNING cluster""",
        (now, reason, sorted(clusters)),
    )
    declared = sorted(ClusterId(row[0]) for row in await cursor.fetchall())
    await event_store.append(
        connection,
        [
            Event(now, EventKind.CLUSTER_LOST, region=region, cluster=cluster, details={"reason": reason})
            for cluster in declared
        ],
    )
    wake_after_commit(connection, REGION_CHANNEL)
    wake_after_commit(connection, SCAN_CHANNEL)
    return declared


async def take_back(connection: AnyConnection, region: RegionId, clusters: Sequence[ClusterId], now: float) -> None:
    """These clusters are there again. Each gets its event."""
    cursor = await connection.execute(
        "DELETE FROM lost_clusters WHERE cluster = ANY(%s) RETURNING cluster", (sorted(clusters),)
    )
    back = sorted(ClusterId(row[0]) for row in await cursor.fetchall())
    await event_store.append(
        connection, [Event(now, EventKind.CLUSTER_BACK, region=region, cluster=cluster) for cluster in back]
    )
    wake_after_commit(connection, SCAN_CHANNEL)


async def overdue_regions(
    connection: AnyConnection, but: RegionId, tasks_stop_after_s: float, grace_s: float
) -> list[RegionId]:
    """Regions that have had neither scheduler nor manager for so long that nothing of theirs runs any more, sorted by name.

    Only those of which that is not known yet, or in which attempts are still live. Where one manager is there, or was there
    lately, tasks run on: they wait for a scheduler.
    """
    cursor = await connection.execute(
        """SELECT r.region FROM regions r JOIN leases l ON l.name = %(regional)s || r.region
            WHERE r.region <> %(but)s
              AND l.expires_at + make_interval(secs => %(stop_after_s)s::float8 + %(grace_s)s) <= clock_timestamp()
              AND NOT EXISTS (SELECT FROM clusters c JOIN leases m ON m.name = %(cluster)s || c.cluster
                               WHERE c.region = r.region
                                 AND m.expires_at + make_interval(secs => coalesce(m.tasks_stop_after_s, %(stop_after_s)s)
                                                                          + %(grace_s)s) > clock_timestamp())
              AND (EXISTS (SELECT FROM attempts a WHERE a.region = r.region AND a.ended_s IS NULL)
                   OR EXISTS (SELECT FROM awards a WHERE a.region = r.region)
                   OR EXISTS (SELECT FROM clusters c WHERE c.region = r.region
                                 AND NOT EXISTS (SELECT FROM lost_clusters x WHERE x.cluster = c.cluster)))
            ORDER BY r.region""",
        {
            "regional": REGIONAL_PREFIX,
            "but": but,
            "stop_after_s": tasks_stop_after_s,
            "grace_s": grace_s,
            "cluster": CLUSTER_PREFIX,
        },
    )
    return [RegionId(row[0]) for row in await cursor.fetchall()]
