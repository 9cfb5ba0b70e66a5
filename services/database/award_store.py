"""What regions have won in closed rounds and have not dispatched yet.

Every function works inside the caller's transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from domain.identifiers import AttemptNumber, RegionId, TenantId, WorkloadId
from domain.rank import QueuePosition, Standing
from services.database.connection import AnyConnection

AWARDS_AT_ONCE = 1_024
"""So many awards are dispatched in one transaction."""


@dataclass(frozen=True, slots=True)
class Award:
    """A lot that a region has won and must dispatch or give back; the position is the entry's present one."""

    position: QueuePosition
    attempt: AttemptNumber
    tenant: TenantId
    checkpoint_progress: float
    failures: int
    revision: int | None = None
    """Of what it asks for; None: it was not changed since it was submitted."""


async def has_awards(connection: AnyConnection, region: RegionId) -> bool:
    """Whether the region has something to dispatch."""
    cursor = await connection.execute("SELECT EXISTS (SELECT FROM awards WHERE region = %s)", (region,))
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def lock_awards(connection: AnyConnection, region: RegionId) -> list[Award]:
    """The region's next awards in the order of the auctions, with the queue entries locked as they stand now. One that was
    changed since it was won waits until it is ranked anew."""
    cursor = await connection.execute(
        """SELECT q.workload, q.priority, q.level, q.credit, q.submitted_s, q.within_quota, w.attempts, q.tenant,
                  w.checkpoint_progress, w.failures, w.revision
             FROM awards a JOIN queue_entries q USING (workload) JOIN workloads w USING (workload)
            WHERE a.region = %s AND q.priority IS NOT NULL ORDER BY a.round, a.lot LIMIT %s FOR UPDATE OF q""",
        (region, AWARDS_AT_ONCE),
    )
    return [
        Award(
            QueuePosition(WorkloadId(row[0]), Standing(row[1], row[2]), row[3], row[4], row[5]),
            AttemptNumber(row[6] + 1),
            TenantId(row[7]),
            row[8],
            row[9],
            row[10],
        )
        for row in await cursor.fetchall()
    ]


async def give_back_awards(connection: AnyConnection, served: Collection[RegionId]) -> int:
    """Awards of all other regions come to nothing: their workloads may be put up again. Returns how many there were.

    A region that dispatches one of them at this moment has its queue entry, and thereby wins the race: without the
    entry there is nothing to put up, or to award to another region.
    """
    cursor = await connection.execute(
        "DELETE FROM awards WHERE region <> ALL(%s) RETURNING workload", (sorted(served),)
    )
    return len(await cursor.fetchall())


async def give_back_awards_of(connection: AnyConnection, region: RegionId) -> None:
    """The region's awards come to nothing: their workloads may be put up again."""
    await connection.execute("DELETE FROM awards WHERE region = %s", (region,))


async def delete_awards(connection: AnyConnection, region: RegionId, workloads: Sequence[WorkloadId]) -> None:
    """These are dispatched or given back. Awards whose workload has left the queue go too."""
    await connection.execute(
        """DELETE FROM awards a WHERE a.region = %s AND (a.workload = ANY(%s)
              OR NOT EXISTS (SELECT FROM queue_entries q WHERE q.workload = a.workload))""",
        (region, list(workloads)),
    )
