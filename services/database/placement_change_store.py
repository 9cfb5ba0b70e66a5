"""Changes of the placements of live attempts: decided, and carried out. Inside the caller's transaction.

A change is fenced by the attempt (it must be live and running) and by its number: one that is not the next is not
written, one that is not the last cannot be finished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from domain.events import EventKind
from domain.identifiers import AttemptNumber, ClusterId, RegionId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey, TaskPlacement, amounts_of
from domain.placement_changes import LossCause, PlacementChange
from services.database import usage_store
from services.database.connection import AnyConnection
from services.database.placement_documents import change_from_document, change_to_document
from services.database.placement_store import write_placements

Changed = Mapping[ClusterId, tuple[float, float]]
"""By cluster: since when the placements are as they are there, and the attempt's progress then."""


@dataclass(frozen=True, slots=True)
class StoredRevision:
    """How often an attempt's placements have changed, and the change that is being carried out."""

    revision: int
    change: PlacementChange | None
    changed: Changed


@dataclass(frozen=True, slots=True)
class TaskKills:
    """How often flexible tasks of an attempt were killed by themselves, and when last."""

    times: int = 0
    last_s: float = 0.0

    def once_more(self, now: float) -> TaskKills:
        return TaskKills(self.times + 1, now)


async def begin_change(
    connection: AnyConnection,
    key: AttemptKey,
    revision: int,
    placements: Sequence[TaskPlacement],
    change: PlacementChange,
    now: float,
    *,
    replaces: bool = False,
) -> bool:
    """The attempt is to hold these from now on; False when it does not run any more, or was changed meanwhile.

    `replaces`: it takes the place of one that is not carried out yet; others come when the last one is. Service and its tenant's
    use are counted by what it held up to now.
    """
    cursor = await connection.execute(
        """SELECT workload FROM attempts WHERE workload = %s AND attempt = %s AND ended_s IS NULL AND state = %s
              FOR NO KEY UPDATE""",
        (key.workload, key.attempt, State.RUNNING.value),
    )
    if await cursor.fetchone() is None:
        return False
    # The row is locked: counting skips rows that another transaction holds, and this one must not be skipped.
    await usage_store.count_use_of(connection, [key], now)
    await connection.execute(
        """UPDATE attempts SET gpus = %s, cpus = %s, received_to_s = greatest(coalesce(received_to_s, started_s), %s),
                  received_gpu_s = received_gpu_s + gpus * greatest(%s - coalesce(received_to_s, started_s), 0)
            WHERE workload = %s AND attempt = %s""",
        (
            *amounts_of(placements),
            now,
            now,
            key.workload,
            key.attempt,
        ),
    )
    cursor = await connection.execute(
        """INSERT INTO placement_revisions AS r (workload, attempt, revision, change) VALUES (%s, %s, %s, %s)
           ON CONFLICT (workload, attempt) DO UPDATE SET revision = excluded.revision, change = excluded.change
            WHERE r.revision = excluded.revision - 1 AND (r.change IS NOT NULL) = %s
        RETURNING revision""",
        (key.workload, key.attempt, revision, Jsonb(change_to_document(change)), replaces),
    )
    if await cursor.fetchone() is None:
        return False
    await connection.execute("DELETE FROM placements WHERE workload = %s AND attempt = %s", (key.workload, key.attempt))
    await write_placements(connection, [(key, placements)])
    return True


async def finish_changes(
    connection: AnyConnection, finished: Sequence[tuple[AttemptKey, int, Changed]]
) -> set[AttemptKey]:
    """These changes, by number, are carried out; returns the attempts for which that is news."""
    if not finished:
        return set()
    cursor = await connection.execute(
        """UPDATE placement_revisions r SET change = NULL, changed = u.changed
             FROM unnest(%s::text[], %s::int[], %s::int[], %s::jsonb[]) AS u (workload, attempt, revision, changed),
                  attempts a
            WHERE r.workload = u.workload AND r.attempt = u.attempt AND r.revision = u.revision
              AND r.change IS NOT NULL AND a.workload = r.workload AND a.attempt = r.attempt AND a.ended_s IS NULL
        RETURNING r.workload, r.attempt""",
        (
            [key.workload for key, _, _ in finished],
            [int(key.attempt) for key, _, _ in finished],
            [revision for _, revision, _ in finished],
            [Jsonb({cluster: list(since) for cluster, since in changed.items()}) for _, _, changed in finished],
        ),
    )
    return {AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])) for row in await cursor.fetchall()}


async def load_revisions(connection: AnyConnection, region: RegionId) -> dict[AttemptKey, StoredRevision]:
    """Of every live attempt of the region that was ever changed."""
    cursor = await connection.execute(
        """SELECT r.workload, r.attempt, r.revision, r.change, r.changed
             FROM placement_revisions r JOIN attempts a USING (workload, attempt)
            WHERE a.region = %s AND a.ended_s IS NULL""",
        (region,),
    )
    return {
        AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])): StoredRevision(
            row[2],
            None if row[3] is None else change_from_document(row[3]),
            {ClusterId(cluster): (since_s, progress) for cluster, (since_s, progress) in row[4].items()},
        )
        for row in await cursor.fetchall()
    }


async def load_task_kills(connection: AnyConnection, region: RegionId) -> dict[AttemptKey, TaskKills]:
    """Of every live attempt of the region that has lost tasks so, as its events tell."""
    cursor = await connection.execute(
        """SELECT e.workload, e.attempt, count(*), max(e.t)
             FROM placement_revisions r JOIN attempts a USING (workload, attempt)
             JOIN events e ON e.workload = a.workload AND e.attempt = a.attempt
            WHERE a.region = %s AND a.ended_s IS NULL AND e.event = %s AND e.details ->> 'cause' = %s
         GROUP BY e.workload, e.attempt""",
        (region, EventKind.RESIZED.value, LossCause.TASK_LOST.value),
    )
    return {
        AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])): TaskKills(row[2], row[3])
        for row in await cursor.fetchall()
    }
