"""Which kinds of workloads no region has room for, and the walk along the queue, which passes them over (decision 062).

Every function works inside the caller's transaction. Whoever writes here holds the lock of the walk (`lock_walk`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from domain.diagnosis import Diagnosis
from domain.identifiers import TenantId, WorkloadId
from domain.life_cycle import TRANSITIONS, Happening, State
from domain.rank import QueuePosition, Standing
from regional_scheduler.queue_walk import QueueWalk
from regional_scheduler.refusals.kinds import WorkloadKind
from regional_scheduler.refusals.refused_kinds import KindKey, Objection
from services.database.connection import AnyConnection
from services.database.diagnosis_documents import diagnosis_from_document

_QUEUE = "queue"
MARKED_AT_ONCE = 500
"""So many entries of the queue are told in one transaction what another one of their kind was told."""


@dataclass(frozen=True, slots=True)
class NewRefusal:
    """One of a kind found no place in any region, and what it was told."""

    key: KindKey
    standing: Standing
    workload: WorkloadId
    happening: Happening
    """NO_PLACE or NO_DATA."""
    reason: str
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class StoredRefusal:
    """A kind that is passed over, as a region that may object to it needs it."""

    key: KindKey
    round_number: int
    position: QueuePosition
    diagnosis: Diagnosis
    awaits_data: bool


@dataclass(frozen=True, slots=True)
class MarkedEntry:
    """An entry of the queue that was told what another one of its kind was told."""

    workload: WorkloadId
    tenant: TenantId
    standing: Standing
    state: State
    reason: str
    diagnosis: Diagnosis


async def lock_walk(connection: AnyConnection) -> QueueWalk:
    """Where the walk is; no other transaction moves it, or opens a round, until this one ends."""
    row = await _lock_walk(connection)
    if row is None:
        await connection.execute(
            "INSERT INTO auction_walks (name, walk, scan_pass, ended, at_head) VALUES (%s, 0, 0, true, false) ON CONFLICT DO NOTHING",
            (_QUEUE,),
        )
        row = await _lock_walk(connection)
    if row is None:
        raise LookupError("the walk of the auctions vanished")
    return QueueWalk(row[0], row[1], row[2], row[3])


async def _lock_walk(connection: AnyConnection) -> TupleRow | None:
    cursor = await connection.execute(
        "SELECT walk, scan_pass, ended, at_head FROM auction_walks WHERE name = %s FOR UPDATE", (_QUEUE,)
    )
    return await cursor.fetchone()


async def store_walk(connection: AnyConnection, walk: QueueWalk) -> None:
    """The walk is there from now on."""
    await connection.execute(
        "UPDATE auction_walks SET walk = %s, scan_pass = %s, ended = %s, at_head = %s WHERE name = %s",
        (walk.number, walk.scan_pass, walk.ended, walk.at_head, _QUEUE),
    )


async def any_has_room(connection: AnyConnection) -> bool:
    """Whether some region has room again for a kind that was refused."""
    cursor = await connection.execute("SELECT EXISTS (SELECT FROM auction_refusals WHERE has_room)")
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def forget_reopened(connection: AnyConnection) -> None:
    """A new walk begins: what may find room again is asked like what is new."""
    await connection.execute("DELETE FROM auction_refusals WHERE NOT holds")


async def forget_absent_kinds(connection: AnyConnection) -> None:
    """Forgets the kinds of which none is queued any more."""
    await connection.execute(
        "DELETE FROM auction_refusals r WHERE NOT EXISTS (SELECT FROM queue_entries q WHERE q.kind = r.kind)"
    )


async def store(connection: AnyConnection, refusals: Sequence[NewRefusal], walk: int, round_number: int) -> None:
    """These were refused in a round of this walk; each key at most once."""
    if not refusals:
        return
    await connection.execute(
        """INSERT INTO auction_refusals (kind, tenant, within_quota, priority, level, holds, has_room, walk, round,
                                         workload, state, reason, diagnosis)
           SELECT u.kind, u.tenant, u.within_quota, u.priority, u.level, true, false, %s, %s, u.workload, u.state, u.reason,
                  u.diagnosis
             FROM unnest(%s::text[], %s::text[], %s::bool[], %s::int[], %s::int[], %s::text[], %s::text[], %s::text[],
                         %s::jsonb[])
               AS u (kind, tenant, within_quota, priority, level, workload, state, reason, diagnosis)
           ON CONFLICT (kind, tenant, within_quota) DO UPDATE
              SET priority = excluded.priority, level = excluded.level, holds = true, has_room = false, walk = excluded.walk,
                  round = excluded.round, workload = excluded.workload, state = excluded.state,
                  reason = excluded.reason, diagnosis = excluded.diagnosis""",
        (
            walk,
            round_number,
            [refusal.key.kind for refusal in refusals],
            [refusal.key.tenant for refusal in refusals],
            [refusal.key.within_quota for refusal in refusals],
            [refusal.standing.priority for refusal in refusals],
            [refusal.standing.level for refusal in refusals],
            [refusal.workload for refusal in refusals],
            [TRANSITIONS[State.PENDING, refusal.happening].value for refusal in refusals],
            [refusal.reason for refusal in refusals],
            [Jsonb(refusal.diagnosis.as_json()) for refusal in refusals],
        ),
    )


async def refused_since(connection: AnyConnection, round_number: int) -> list[StoredRefusal]:
    """What holds and was refused in this round or a later one, in the order of the rounds."""
    cursor = await connection.execute(
        """SELECT kind, tenant, within_quota, round, workload, priority, level, diagnosis, state FROM auction_refusals
            WHERE holds AND round >= %s ORDER BY round, kind, tenant, within_quota""",
        (round_number,),
    )
    return [
        StoredRefusal(
            KindKey(WorkloadKind(row[0]), TenantId(row[1]), row[2]),
            row[3],
            QueuePosition(WorkloadId(row[4]), Standing(row[5], row[6]), 0.0, 0.0, row[2]),
            diagnosis_from_document(row[7]),
            State(row[8]) is State.AWAITING_DATA,
        )
        for row in await cursor.fetchall()
    ]


async def object_to(connection: AnyConnection, objections: Sequence[Objection]) -> None:
    """A region may have room for these kinds again. What was asked in a later round since is left alone: it took part."""
    await connection.execute(
        """UPDATE auction_refusals r SET holds = false, has_room = r.has_room OR u.has_room
             FROM unnest(%s::text[], %s::text[], %s::bool[], %s::bigint[], %s::bool[])
               AS u (kind, tenant, within_quota, round, has_room)
            WHERE (r.kind, r.tenant, r.within_quota, r.round) = (u.kind, u.tenant, u.within_quota, u.round)""",
        (
            [objection.refused.key.kind for objection in objections],
            [objection.refused.key.tenant for objection in objections],
            [objection.refused.key.within_quota for objection in objections],
            [objection.refused.round_number for objection in objections],
            [objection.has_room for objection in objections],
        ),
    )


async def doubt_all(connection: AnyConnection) -> None:
    """What was refused may find room in another fleet, or another reason why not: the next walk asks all of it. Takes the lock
    of the walk."""
    await lock_walk(connection)
    await connection.execute("UPDATE auction_refusals SET holds = false WHERE holds")


async def mark_asked(connection: AnyConnection, workloads: Sequence[WorkloadId], walk: int) -> None:
    """These were refused, which says nothing of others of their kind: this walk asks them no second time."""
    await connection.execute(
        "UPDATE queue_entries SET asked_in_walk = %s WHERE workload = ANY(%s)", (walk, list(workloads))
    )


async def mark_alike(connection: AnyConnection) -> list[MarkedEntry]:
    """Tells entries that are passed over what was told to the one of their kind that was asked; so many at most.

    Kind by kind in the order of the index queue_kinds, which finds those that were not told yet: most were, as a rule all.
    """
    cursor = await connection.execute(
        """WITH alike AS MATERIALIZED (
                SELECT q.workload, r.state, replace(r.reason, r.workload, q.workload) AS reason, r.diagnosis
                  FROM auction_refusals r
                 CROSS JOIN LATERAL (
                       SELECT e.workload FROM queue_entries e
                        WHERE e.kind = r.kind AND e.within_quota = r.within_quota
                          AND e.state = ANY(CASE r.state WHEN %s THEN %s::text[] ELSE %s::text[] END)
                          AND (e.priority, e.level) >= (r.priority, r.level) AND r.tenant IN ('', e.tenant)
                          AND NOT EXISTS (SELECT FROM awards a WHERE a.workload = e.workload)
                        ORDER BY e.kind, e.within_quota, e.state, e.priority, e.level LIMIT %s
                          FOR UPDATE OF e SKIP LOCKED) AS q
                 WHERE r.holds LIMIT %s)
           UPDATE queue_entries q SET state = alike.state, reason = alike.reason, diagnosis = alike.diagnosis
             FROM alike WHERE alike.workload = q.workload
        RETURNING q.workload, q.tenant, q.priority, q.level, q.state, q.reason, q.diagnosis""",
        (
            State.WAITING.value,
            [State.PENDING.value, State.AWAITING_DATA.value],
            [State.PENDING.value, State.WAITING.value],
            MARKED_AT_ONCE,
            MARKED_AT_ONCE,
        ),
    )
    marked = [
        MarkedEntry(
            WorkloadId(row[0]),
            TenantId(row[1]),
            Standing(row[2], row[3]),
            State(row[4]),
            row[5],
            diagnosis_from_document(row[6]),
        )
        for row in await cursor.fetchall()
    ]
    return sorted(marked, key=lambda entry: entry.workload)
