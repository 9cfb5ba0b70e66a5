"""The queue: loaded and ranked as columns by the scan pass, listed for people.

A scan pass decides on a snapshot; what it stores reaches only entries that are still there and that no other
transaction dispatches or cancels at that moment. It never waits for another, so it cannot block one for good.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike
from psycopg.rows import TupleRow

from domain.diagnosis import Diagnosis
from domain.events import EventKind
from domain.identifiers import TenantId, WorkloadId
from domain.life_cycle import State
from domain.rank import QueuePosition, Standing
from global_scheduler.scan_view import NONE_ASKED
from global_scheduler.view_builder import PendingRows, RunningRows
from services.database import event_store, queue_change_store
from services.database.array_text import number_array, text_array
from services.database.columns import joined, packed, split, unpacked
from services.database.connection import AnyConnection
from services.database.diagnosis_documents import diagnosis_from_document
from services.database.state_guards import quoted

SCAN_PASSES_KEPT = 1_000

# Ascending in this order is the order of the queue; it is the index queue_order.
_ORDER = "priority, level, (-credit), submitted_s, workload"

_ARRAYS = (number_array, number_array, number_array, number_array, text_array)
"""What writes columns of such keys as arrays, much quicker than the driver adapts them."""

_BEFORE_ALL = (-1, 0, 0.0, 0.0, "")
"""Comes before every entry."""

_RUNNING = f"""
    SELECT count(*), {joined("workload")}, {packed("attempt")}, {joined("tenant")},
           {packed("coalesce(started_s, dispatched_s)")}, {packed("priority")}, {packed("level")},
           {packed("within_quota")}, {packed(f"state = {quoted({State.PREEMPTING})}")}, {joined("charges::text")},
           {packed("gpus")}, {packed("submitted_s")}, {packed("coalesce(started_s, 'nan')")},
           {packed("attained_gpu_s + received_gpu_s")}, {packed("coalesce(received_to_s, started_s, 'nan')")},
           {packed(f"coalesce(asked_priority, {NONE_ASKED}::smallint)")}
      FROM (SELECT a.*, w.submitted_s, w.asked_priority, w.attained_gpu_s - w.before_promotion_gpu_s AS attained_gpu_s FROM attempts a JOIN workloads w USING (workload)
             WHERE a.ended_s IS NULL ORDER BY a.workload, a.attempt) AS live"""


@dataclass(frozen=True, slots=True)
class RankedEntries:
    """Columns: entries that a scan pass ranks anew."""

    workloads: Sequence[WorkloadId]
    priority: ArrayLike
    level: ArrayLike
    credit: ArrayLike
    within_quota: ArrayLike
    at_limit: Mapping[WorkloadId, str] = field(default_factory=dict)
    """Of those that are kept back the sentence that says why: they stand nowhere."""


@dataclass(frozen=True, slots=True)
class StoredScanPass:
    """What the last scan pass did."""

    number: int
    now_s: float
    entries: int
    changed: int
    reclassified: int


@dataclass(frozen=True, slots=True)
class QueueLine:
    """One entry of the queue as people see it."""

    workload: WorkloadId
    name: str
    tenant: TenantId
    state: State
    submitted_s: float
    gpus: int
    reason: str
    diagnosis: Diagnosis | None
    """Why the last auction refused it; the reason is the sentence."""
    rank: int
    """1 is the head."""
    position: QueuePosition


# ---------------------------------------------------------------- what a scan pass reads


async def over_quota_gpus(connection: AnyConnection) -> dict[TenantId, int]:
    """The GPUs that each tenant waits for beyond its quota, as the last scan pass has it; by tenant."""
    cursor = await connection.execute(
        """SELECT tenant, sum(gpus + coalesce((SELECT sum(value::int) FROM jsonb_each_text(more_gpus)), 0))
             FROM queue_entries WHERE NOT within_quota AND priority IS NOT NULL GROUP BY tenant ORDER BY tenant"""
    )
    return {TenantId(tenant): int(gpus) for tenant, gpus in await cursor.fetchall()}


async def load_pending(connection: AnyConnection, now: float) -> PendingRows:
    """Every queued workload that need not wait any longer, by (submit time, id)."""
    return (await queue_change_store.load_all(connection)).due(now)


async def load_running(connection: AnyConnection) -> RunningRows:
    """Every attempt that has not ended, sorted by workload."""
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(_RUNNING)
        row = await cursor.fetchone()
    if row is None:
        raise LookupError("an aggregate without a row")
    return await asyncio.to_thread(_running_rows, row)


def _running_rows(row: TupleRow) -> RunningRows:
    count = int(row[0])
    charges = split(row[9])
    known = {text: json.loads(text) for text in set(charges)}  # most attempts are charged what others are
    return RunningRows(
        workloads=[WorkloadId(name) for name in split(row[1])],
        attempts=unpacked(row[2], "int4", count),
        tenants=[TenantId(name) for name in split(row[3])],
        started_s=unpacked(row[4], "float8", count),
        priority=unpacked(row[5], "int2", count),
        level=unpacked(row[6], "int2", count),
        within_quota=unpacked(row[7], "bool", count),
        leaving=unpacked(row[8], "bool", count),
        charges=[known[text] for text in charges],
        gpus=unpacked(row[10], "int4", count),
        submitted_s=unpacked(row[11], "float8", count),
        working_since_s=unpacked(row[12], "float8", count),
        attained_gpu_s=unpacked(row[13], "float8", count),
        changed_s=unpacked(row[14], "float8", count),
        asked_priority=unpacked(row[15], "int2", count),
    )


# ---------------------------------------------------------------- what a scan pass writes


async def store_ranks(connection: AnyConnection, ranked: RankedEntries) -> list[WorkloadId]:
    """Writes where these entries stand from now on; returns those that were written.

    An entry that has left the queue is left alone, and so is one that another transaction has locked to take it out:
    the next pass finds it unchanged, if it is still there.
    """
    if not ranked.workloads:
        return []
    cursor = await connection.execute(
        """WITH u AS MATERIALIZED (
                    SELECT * FROM unnest(%s::text[], %s::smallint[], %s::smallint[], %s::float8[], %s::bool[])
                               AS u (workload, priority, level, credit, within_quota)),
                free AS MATERIALIZED (
                    SELECT q.workload FROM queue_entries q JOIN u USING (workload) FOR UPDATE OF q SKIP LOCKED)
           UPDATE queue_entries q
              SET priority = u.priority, level = u.level, credit = u.credit, within_quota = u.within_quota,
                  at_limit = FALSE, reason = CASE WHEN q.at_limit THEN '' ELSE q.reason END,
                  asked_in_walk = CASE WHEN (u.priority, u.level) >= (q.priority, q.level)
                                        AND q.within_quota = u.within_quota THEN q.asked_in_walk END
             FROM u JOIN free USING (workload)
            WHERE q.workload = u.workload
        RETURNING q.workload""",
        (
            text_array(ranked.workloads),
            number_array(np.asarray(ranked.priority, dtype=np.int16).tolist()),
            number_array(np.asarray(ranked.level, dtype=np.int16).tolist()),
            number_array(np.asarray(ranked.credit, dtype=np.float64).tolist()),
            number_array(np.asarray(ranked.within_quota, dtype=np.bool_).tolist()),
        ),
    )
    written = [WorkloadId(row[0]) for row in await cursor.fetchall()]
    await _keep_back(connection, {name: ranked.at_limit[name] for name in written if name in ranked.at_limit})
    return written


async def store_credits(
    connection: AnyConnection, workloads: Sequence[WorkloadId], credit: ArrayLike, was: ArrayLike
) -> None:
    """Writes credits of entries that stand where they stood. One that has another credit by now than it had, is not ranked any
    more, or is locked just now, is left to the next pass.
    """
    await connection.execute(
        """WITH u AS MATERIALIZED (
                    SELECT * FROM unnest(%s::text[], %s::float8[], %s::float8[]) AS u (workload, credit, was)),
                free AS MATERIALIZED (
                    SELECT q.workload FROM queue_entries q JOIN u USING (workload)
                     WHERE q.credit = u.was AND q.priority IS NOT NULL FOR UPDATE OF q SKIP LOCKED)
           UPDATE queue_entries q SET credit = u.credit FROM u JOIN free USING (workload) WHERE q.workload = u.workload""",
        (
            text_array(workloads),
            number_array(np.asarray(credit, dtype=np.float64).tolist()),
            number_array(np.asarray(was, dtype=np.float64).tolist()),
        ),
    )


async def _keep_back(connection: AnyConnection, sentences: Mapping[WorkloadId, str]) -> None:
    """Entries that are ours stand nowhere until a later pass ranks them; what a region has won of them comes to nothing."""
    if not sentences:
        return
    names = list(sentences)
    await connection.execute(
        """UPDATE queue_entries q SET priority = NULL, at_limit = TRUE, reason = u.reason, diagnosis = NULL
             FROM unnest(%s::text[], %s::text[]) AS u (workload, reason) WHERE q.workload = u.workload""",
        (names, list(sentences.values())),
    )
    await connection.execute("DELETE FROM awards WHERE workload = ANY(%s)", (names,))


async def append_ranked_events(connection: AnyConnection, workloads: Sequence[WorkloadId], now: float) -> None:
    """Adds a `ranked` event for each of these entries, which says where it stands, in the order of the queue."""
    if not workloads:
        return
    await event_store.prepare_to_append(connection)
    await connection.execute(
        f"""INSERT INTO events (t, event, workload, tenant, priority, level, details)
            SELECT %s, %s, workload, tenant, priority, level,
                   jsonb_build_object('credit', credit, 'within_quota', within_quota)
              FROM queue_entries WHERE workload = ANY(%s::text[]) AND priority IS NOT NULL ORDER BY {_ORDER}""",
        (now, EventKind.RANKED.value, text_array(workloads)),
    )


async def store_scan_pass(
    connection: AnyConnection, *, now: float, entries: int, changed: int, reclassified: int
) -> int:
    """Records that a pass was made and returns its number; old records are dropped now and then."""
    cursor = await connection.execute(
        """INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (%s, %s, %s, %s)
           RETURNING scan_pass""",
        (now, entries, changed, reclassified),
    )
    row = await cursor.fetchone()
    if row is None:
        raise LookupError("the scan pass was not recorded")
    number = int(row[0])
    if number % 256 == 0:
        await connection.execute("DELETE FROM scan_passes WHERE scan_pass < %s", (number - SCAN_PASSES_KEPT,))
    return number


# ---------------------------------------------------------------- what people see


async def newest_scan_pass(connection: AnyConnection) -> StoredScanPass | None:
    """The last pass; None before the first."""
    cursor = await connection.execute(
        """SELECT scan_pass, now_s, entries, changed, reclassified FROM scan_passes
            ORDER BY scan_pass DESC LIMIT 1"""
    )
    row = await cursor.fetchone()
    return None if row is None else StoredScanPass(*row)


@dataclass(frozen=True, slots=True)
class WaitingWorkloads:
    """Whether any workload may start by now and has not."""

    any: bool
    untried: bool
    """No region has answered yet whether it has room for it."""


async def who_waits(connection: AnyConnection, now: float) -> WaitingWorkloads:
    """Of the whole queue; what waits for its input tables, or for its next try, counts for nothing."""
    cursor = await connection.execute(
        """SELECT count(*) > 0, count(*) FILTER (WHERE state = %s) > 0
             FROM queue_entries WHERE not_before_s <= %s AND state = ANY(%s)""",
        (State.PENDING.value, now, [State.PENDING.value, State.WAITING.value]),
    )
    row = await cursor.fetchone()
    return WaitingWorkloads(False, False) if row is None else WaitingWorkloads(bool(row[0]), bool(row[1]))


async def count_queued(connection: AnyConnection, tenants: Sequence[str] | None = None) -> int:
    """How many workloads (of these tenants, None: of all) are queued, ranked or not."""
    cursor = await connection.execute(
        "SELECT count(*) FROM queue_entries WHERE %(tenants)s::text[] IS NULL OR tenant = ANY(%(tenants)s)",
        {"tenants": None if tenants is None else list(tenants)},
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def list_head(connection: AnyConnection, limit: int, tenants: Sequence[str] | None = None) -> list[QueueLine]:
    """The first ranked entries, from the head on; with `tenants` only their own, but with their ranks among all."""
    if tenants is None:
        cursor = await connection.execute(
            f"""SELECT q.*, w.name, w.gpus, row_number() OVER (ORDER BY {_qualified("q")}) AS rank
                  FROM (SELECT workload, tenant, submitted_s, state, reason, priority, level, credit, within_quota,
                               diagnosis
                          FROM queue_entries WHERE priority IS NOT NULL ORDER BY {_ORDER} LIMIT %s) AS q
                  JOIN workloads w USING (workload) ORDER BY rank""",
            (limit,),
        )
    else:
        cursor = await connection.execute(
            f"""SELECT q.workload, q.tenant, q.submitted_s, q.state, q.reason, q.priority, q.level, q.credit,
                       q.within_quota, q.diagnosis, w.name, w.gpus, q.rank
                  FROM (SELECT *, row_number() OVER (ORDER BY {_ORDER}) AS rank
                          FROM queue_entries WHERE priority IS NOT NULL) AS q
                  JOIN workloads w USING (workload) WHERE q.tenant = ANY(%s) ORDER BY q.rank LIMIT %s""",
            (list(tenants), limit),
        )
    return [_queue_line(row) for row in await cursor.fetchall()]


def _qualified(table: str) -> str:
    return f"{table}.priority, {table}.level, (-{table}.credit), {table}.submitted_s, {table}.workload"


def _queue_line(row: TupleRow) -> QueueLine:
    workload = WorkloadId(row[0])
    return QueueLine(
        workload=workload,
        name=row[10],
        tenant=TenantId(row[1]),
        state=State(row[3]),
        submitted_s=row[2],
        gpus=row[11],
        reason=row[4],
        diagnosis=None if row[9] is None else diagnosis_from_document(row[9]),
        rank=row[12],
        position=QueuePosition(workload, Standing(row[5], row[6]), row[7], row[2], row[8]),
    )


async def ranks_of(connection: AnyConnection, positions: Sequence[QueuePosition]) -> dict[WorkloadId, int]:
    """The ranks of queued workloads that stand there: 1 plus the entries before each, by workload.

    However many they are, each entry of the queue is counted once: for the first of them that comes after it.
    """
    if not positions:
        return {}
    ordered = sorted(position.sort_key for position in positions)
    spans = [(*after, *key) for after, key in pairwise([_BEFORE_ALL, *ordered])]
    cursor = await connection.execute(
        f"""SELECT u.workload, 1 + sum(passed.entries) OVER (ORDER BY u.place)
              FROM unnest(%s::int[], %s::int[], %s::float8[], %s::float8[], %s::text[],
                          %s::int[], %s::int[], %s::float8[], %s::float8[], %s::text[]) WITH ORDINALITY
                   AS u (from_priority, from_level, from_minus_credit, from_s, from_workload,
                         priority, level, minus_credit, submitted_s, workload, place)
              JOIN LATERAL (SELECT count(*) AS entries FROM queue_entries q
                             WHERE q.priority IS NOT NULL
                               AND ({_qualified("q")}) >= (u.from_priority, u.from_level, u.from_minus_credit,
                                                           u.from_s, u.from_workload)
                               AND ({_qualified("q")}) < (u.priority, u.level, u.minus_credit, u.submitted_s, u.workload)
                           ) AS passed ON true""",
        [_ARRAYS[place % len(_ARRAYS)](column) for place, column in enumerate(zip(*spans, strict=True))],
    )
    return {WorkloadId(row[0]): int(row[1]) for row in await cursor.fetchall()}


# ---------------------------------------------------------------- room for gangs


@dataclass(frozen=True, slots=True)
class WaitingEntry:
    """A queued workload that the last auction found no place for."""

    workload: WorkloadId
    within_quota: bool
    queued_since_s: float


async def load_waiting(connection: AnyConnection, most_gpus: int, now: float, limit: int) -> list[WaitingEntry]:
    """Those that ask for GPUs of one model, and for no more than so many; best first. Those for which room is being made
    anywhere are left out.
    """
    cursor = await connection.execute(
        f"""SELECT q.workload, coalesce(q.within_quota, false), coalesce(q.queued_since_s, q.submitted_s)
              FROM queue_entries q
             WHERE q.state = {quoted({State.WAITING})} AND q.gpus BETWEEN 1 AND %s AND q.more_gpus IS NULL
               AND q.not_before_s <= %s
               AND NOT EXISTS (SELECT FROM attempts a
                                WHERE a.ended_s IS NULL AND a.eviction ->> 'room_for' = q.workload)
               AND NOT EXISTS (SELECT FROM reserved_places p WHERE p.room_for = q.workload)
             ORDER BY {_ORDER} LIMIT %s""",
        (most_gpus, now, limit),
    )
    return [
        WaitingEntry(WorkloadId(name), bool(within_quota), float(since_s))
        for name, within_quota, since_s in await cursor.fetchall()
    ]


async def say_room_is_made(connection: AnyConnection, workload: WorkloadId, sentence: str) -> None:
    """What the queue shows of it until the next auction says something else."""
    await connection.execute(
        f"UPDATE queue_entries SET reason = %s WHERE workload = %s AND state = {quoted({State.WAITING})}",
        (sentence, workload),
    )


async def not_before(connection: AnyConnection, workloads: Sequence[WorkloadId], from_s: float) -> None:
    """Those of these workloads that are queued are put up for auction from then on, if not later anyway."""
    await connection.execute(
        "UPDATE queue_entries SET not_before_s = greatest(not_before_s, %s) WHERE workload = ANY(%s)",
        (from_s, list(workloads)),
    )
