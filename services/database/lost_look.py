"""What an operator has to know before something is declared lost: whether it is there, and what runs on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.identifiers import AttemptNumber, ClusterId, RegionId, WorkloadId
from domain.placement import AttemptKey
from services.database.connection import AnyConnection
from services.database.lease_store import CLUSTER_PREFIX, REGIONAL_PREFIX


@dataclass(frozen=True, slots=True)
class RegionLook:
    """A region, as far as its leases and attempts tell."""

    live: bool
    """Its scheduler holds its lease."""
    clusters: dict[ClusterId, bool]
    """All of its clusters, sorted by name, and whether their managers hold their leases."""
    tasks_run_on_s: dict[ClusterId, float]
    """For how many real seconds tasks may yet run in clusters whose managers hold no lease; without those where none do,
    and those that are lost already."""


async def look_at_regions(connection: AnyConnection) -> dict[RegionId, RegionLook]:
    """All regions of the fleet, sorted by name."""
    cursor = await connection.execute(
        """SELECT r.region, coalesce(l.expires_at > clock_timestamp(), false), c.cluster,
                  coalesce(m.expires_at > clock_timestamp(), false),
                  extract(epoch FROM m.expires_at - clock_timestamp())::float8 + m.tasks_stop_after_s,
                  EXISTS (SELECT FROM lost_clusters x WHERE x.cluster = c.cluster)
             FROM regions r LEFT JOIN leases l ON l.name = %s || r.region
             LEFT JOIN clusters c USING (region) LEFT JOIN leases m ON m.name = %s || c.cluster
            ORDER BY r.region, c.cluster""",
        (REGIONAL_PREFIX, CLUSTER_PREFIX),
    )
    found: dict[RegionId, RegionLook] = {}
    for region, live, cluster, cluster_live, run_on_s, lost in await cursor.fetchall():
        look = found.setdefault(RegionId(region), RegionLook(live, {}, {}))
        if cluster is not None:
            look.clusters[ClusterId(cluster)] = cluster_live
            if not (cluster_live or lost) and run_on_s is not None and run_on_s > 0.0:
                look.tasks_run_on_s[ClusterId(cluster)] = run_on_s
    return found


async def live_attempts_on(connection: AnyConnection, clusters: Sequence[ClusterId]) -> list[AttemptKey]:
    """The live attempts that hold anything in these clusters, sorted by key."""
    cursor = await connection.execute(
        """SELECT DISTINCT a.workload, a.attempt FROM attempts a JOIN placements p USING (workload, attempt)
            WHERE a.ended_s IS NULL AND p.cluster = ANY(%s) ORDER BY a.workload, a.attempt""",
        (list(clusters),),
    )
    return [AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])) for row in await cursor.fetchall()]
