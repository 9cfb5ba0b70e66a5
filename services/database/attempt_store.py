"""Attempts and their placements: dispatched, started, progressing, evicted, ended.

Every function works inside the caller's transaction and touches only rows that the fence allows: an attempt that
has ended, or is not the newest of its workload, can change nothing (I8). Rows come and go in bulk.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from psycopg.rows import TupleRow
from psycopg.types.json import Jsonb

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.attempt_run.events import Eviction
from domain.cells import CellsOfJobs
from domain.events import EvictionCause
from domain.eviction import DEFAULT_RULE, EvictionRule, Evictor
from domain.identifiers import AttemptNumber, RegionId, TenantId, WorkloadId
from domain.life_cycle import ENDED, LIVE, Happening, State, state_after, state_changes
from domain.placement import AttemptKey, TaskPlacement, amounts_of
from domain.rank import Standing
from services.database.array_text import number_array, text_array
from services.database.cell_store import load_cells, write_cells
from services.database.connection import AnyConnection
from services.database.eviction_guard import VICTIM_MAY_BE_EVICTED, guarded_by
from services.database.pipeline import together
from services.database.placement_store import load_placements, write_placements
from services.database.reclassification_store import StoredStanding
from services.database.requeue_store import RequeuedEntry, insert_entries
from services.database.state_guards import StateChangeRefused, before

ATTEMPT_ENDED = "ENDED"  # what stands where a live attempt has its workload's state


@dataclass(frozen=True, slots=True)
class StoredAttempt:
    """A live attempt as the database knows it."""

    key: AttemptKey
    tenant: TenantId
    state: State
    standing: Standing
    within_quota: bool
    guaranteed: bool
    """Whether it was within quota when it was dispatched."""
    submitted_s: float
    dispatched_s: float
    started_s: float | None
    eviction: Eviction | None
    progress_at_start: float
    progress: float
    checkpoint_progress: float
    checkpoint_s: float | None
    """When the newest checkpoint was recorded; None: none was."""
    failures: int
    charges: Mapping[str, int]
    placements: tuple[TaskPlacement, ...]
    specification: bytes
    cells: CellsOfJobs = ()
    profiles_revision: int = 0
    """Of the sensitivity profiles, when it was dispatched."""


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """An attempt to be dispatched."""

    key: AttemptKey
    tenant: TenantId
    standing: Standing
    within_quota: bool
    guaranteed: bool
    dispatched_s: float
    progress_at_start: float
    charges: Mapping[str, int]
    placements: tuple[TaskPlacement, ...]
    cells: CellsOfJobs = ()
    profiles_revision: int = 0


async def load_live(connection: AnyConnection, region: RegionId) -> list[StoredAttempt]:
    """Every attempt of the region that has not ended, with its placements and cells, sorted by key."""
    cells = await load_cells(connection, region)
    placements = await load_placements(connection, region)
    cursor = await connection.execute(
        """SELECT a.workload, a.attempt, a.tenant, a.state, a.priority, a.level, a.within_quota, a.guaranteed, w.submitted_s,
                  a.dispatched_s, a.started_s, a.eviction, a.progress_at_start, a.progress, a.checkpoint_progress,
                  (SELECT max(c.saved_s) FROM checkpoints c WHERE c.workload = a.workload AND c.attempt = a.attempt),
                  w.failures, a.charges, w.specification, a.profiles_revision
             FROM attempts a JOIN workloads w USING (workload)
            WHERE a.region = %s AND a.ended_s IS NULL
            ORDER BY a.workload, a.attempt""",
        (region,),
    )
    return [
        StoredAttempt(
            key=AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])),
            tenant=TenantId(row[2]),
            state=State(row[3]),
            standing=Standing(row[4], row[5]),
            within_quota=row[6],
            guaranteed=row[7],
            submitted_s=row[8],
            dispatched_s=row[9],
            started_s=row[10],
            eviction=None if row[11] is None else Eviction.from_json(row[11]),
            progress_at_start=row[12],
            progress=row[13],
            checkpoint_progress=row[14],
            checkpoint_s=row[15],
            failures=row[16],
            charges=row[17],
            placements=tuple(placements.get((row[0], row[1]), ())),
            specification=bytes(row[18]),
            cells=cells.get(AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])), ()),
            profiles_revision=row[19],
        )
        for row in await cursor.fetchall()
    ]


async def dispatch(connection: AnyConnection, region: RegionId, attempts: Sequence[NewAttempt]) -> None:
    """Writes the attempts with their placements and cells and takes their workloads out of the queue.

    The caller holds locks on the queue entries, has checked that they still stand, and has charged the quota.
    """
    if not attempts:
        return
    workloads = [attempt.key.workload for attempt in attempts]
    numbers = [int(attempt.key.attempt) for attempt in attempts]
    amounts = [amounts_of(attempt.placements) for attempt in attempts]
    await connection.execute(
        """INSERT INTO attempts (workload, attempt, tenant, region, state, priority, level, within_quota, guaranteed, gpus,
                                 cpus, charges, dispatched_s, progress_at_start, progress, checkpoint_progress,
                                 profiles_revision)
           SELECT u.workload, u.attempt, u.tenant, %s, %s, u.priority, u.level, u.within_quota, u.guaranteed, u.gpus, u.cpus,
                  u.charges, u.dispatched_s, u.progress, u.progress, u.progress, u.profiles_revision
             FROM unnest(%s::text[], %s::int[], %s::text[], %s::smallint[], %s::smallint[], %s::bool[], %s::bool[],
                         %s::int[], %s::float8[], %s::jsonb[], %s::float8[], %s::float8[], %s::bigint[])
               AS u (workload, attempt, tenant, priority, level, within_quota, guaranteed, gpus, cpus, charges,
                     dispatched_s, progress, profiles_revision)""",
        (
            region,
            State.DISPATCHED.value,
            workloads,
            numbers,
            text_array(attempt.tenant for attempt in attempts),
            number_array(attempt.standing.priority for attempt in attempts),
            number_array(attempt.standing.level for attempt in attempts),
            number_array(attempt.within_quota for attempt in attempts),
            number_array(attempt.guaranteed for attempt in attempts),
            number_array(gpus for gpus, _ in amounts),
            number_array(cpus for _, cpus in amounts),
            text_array(json.dumps(dict(attempt.charges)) for attempt in attempts),
            number_array(attempt.dispatched_s for attempt in attempts),
            number_array(attempt.progress_at_start for attempt in attempts),
            number_array(attempt.profiles_revision for attempt in attempts),
        ),
    )
    await write_placements(connection, [(attempt.key, attempt.placements) for attempt in attempts])
    await write_cells(connection, [(attempt.key, attempt.cells) for attempt in attempts])
    await connection.execute("DELETE FROM queue_entries WHERE workload = ANY(%s)", (workloads,))
    cursor = await connection.execute(
        """UPDATE workloads w SET state = %s, attempts = u.attempt, region = %s, reason = ''
             FROM unnest(%s::text[], %s::int[]) AS u (workload, attempt)
            WHERE w.workload = u.workload AND w.state = ANY(%s)
        RETURNING w.workload""",
        (State.DISPATCHED.value, region, workloads, numbers, before(Happening.DISPATCHED)),
    )
    moved = len(await cursor.fetchall())
    if moved != len(workloads):
        raise StateChangeRefused(Happening.DISPATCHED, len(workloads), moved)


async def begin_evictions(
    connection: AnyConnection,
    evictions: Sequence[tuple[AttemptKey, Eviction]],
    now: float,
    rule: EvictionRule = DEFAULT_RULE,
    guaranteed: Collection[AttemptKey] = (),
) -> set[AttemptKey]:
    """Marks live attempts as being evicted from now on; returns those that were live and not being evicted before.

    Where room is made for another one, only a victim that the rule lets it evict at this moment is marked (I5, I15).
    `guaranteed` are those among the other ones that are within their tenants' quotas. The owner of the cells that the
    victim uses opportunistically is not bound by the rule.
    """
    if not evictions:
        return set()
    cursor = await connection.execute(
        f"""UPDATE attempts a SET state = %(leaving)s, eviction = u.eviction, leaving_s = %(now)s,
                  preempted_s = CASE WHEN u.by_priority IS NOT NULL THEN %(now)s::float8 END
             FROM unnest(%(workloads)s::text[], %(attempts)s::int[], %(evictions)s::jsonb[],
                         %(by_priority)s::smallint[], %(by_level)s::smallint[], %(by_guaranteed)s::bool[],
                         %(own_cells)s::bool[])
               AS u (workload, attempt, eviction, by_priority, by_level, by_guaranteed, own_cells)
            WHERE a.workload = u.workload AND a.attempt = u.attempt AND a.ended_s IS NULL AND a.state = ANY(%(before)s)
              AND (u.by_priority IS NULL OR u.own_cells OR ({VICTIM_MAY_BE_EVICTED}))
        RETURNING a.workload, a.attempt""",
        {
            "leaving": state_after(Happening.EVICTION_BEGAN).value,
            "before": before(Happening.EVICTION_BEGAN),
            "workloads": [key.workload for key, _ in evictions],
            "attempts": [int(key.attempt) for key, _ in evictions],
            "evictions": [Jsonb(eviction.as_json()) for _, eviction in evictions],
            "own_cells": [eviction.own_cells for _, eviction in evictions],
            **guarded_by(rule, now, [_newcomer_of(eviction, guaranteed) for _, eviction in evictions]),
        },
    )
    marked = _keys(await cursor.fetchall())
    await _happens(connection, marked, Happening.EVICTION_BEGAN)
    return marked


def _newcomer_of(eviction: Eviction, guaranteed: Collection[AttemptKey]) -> Evictor | None:
    """What needs the room; None when the attempt leaves for no other one."""
    return None if eviction.by_standing is None else Evictor(eviction.by_standing, eviction.by in guaranteed)


async def change_causes(connection: AnyConnection, evictions: Sequence[tuple[AttemptKey, Eviction]]) -> None:
    """Live attempts that are leaving already do so for another cause from now on."""
    if evictions:
        await connection.execute(
            """UPDATE attempts a SET eviction = u.eviction
                 FROM unnest(%s::text[], %s::int[], %s::jsonb[]) AS u (workload, attempt, eviction)
                WHERE a.workload = u.workload AND a.attempt = u.attempt AND a.ended_s IS NULL AND a.eviction IS NOT NULL""",
            (
                [key.workload for key, _ in evictions],
                [int(key.attempt) for key, _ in evictions],
                [Jsonb(eviction.as_json()) for _, eviction in evictions],
            ),
        )


async def record_started(
    connection: AnyConnection, started: Sequence[tuple[AttemptKey, float]]
) -> dict[AttemptKey, StoredStanding]:
    """The gang runs since that time; returns those for which this is news, and where they stand until this transaction ends."""
    if not started:
        return {}
    cursor = await connection.execute(
        """UPDATE attempts a
              SET started_s = u.started_s, state = CASE WHEN a.state = ANY(%s) THEN %s ELSE a.state END
             FROM unnest(%s::text[], %s::int[], %s::float8[]) AS u (workload, attempt, started_s)
            WHERE a.workload = u.workload AND a.attempt = u.attempt AND a.ended_s IS NULL AND a.started_s IS NULL
        RETURNING a.workload, a.attempt, a.priority, a.level, a.within_quota, a.charges, a.state""",
        (
            before(Happening.STARTED),
            state_after(Happening.STARTED).value,
            [key.workload for key, _ in started],
            [int(key.attempt) for key, _ in started],
            [started_s for _, started_s in started],
        ),
    )
    rows = await cursor.fetchall()
    running = _keys([row for row in rows if row[6] == state_after(Happening.STARTED).value])
    await _happens(connection, running, Happening.STARTED)
    return _stands(rows)


async def _happens(connection: AnyConnection, keys: set[AttemptKey], happening: Happening) -> None:
    """Moves the workloads of these attempts on. Raises StateChangeRefused when one of them is elsewhere."""
    if keys:
        cursor = await connection.execute(
            "UPDATE workloads SET state = %s WHERE workload = ANY(%s) AND state = ANY(%s) RETURNING workload",
            (state_after(happening).value, sorted(key.workload for key in keys), before(happening)),
        )
        moved = len(await cursor.fetchall())
        if moved != len(keys):
            raise StateChangeRefused(happening, len(keys), moved)


@dataclass(frozen=True, slots=True)
class AttemptProgress:
    """What a live attempt last reported."""

    key: AttemptKey
    progress: float
    checkpoint_progress: float
    throughput: float


async def record_progress(connection: AnyConnection, reports: Sequence[AttemptProgress]) -> None:
    """Stores progress of live attempts, one row each; never turns it back. Their workloads get it at their ends."""
    if not reports:
        return
    await connection.execute(
        """UPDATE attempts a SET progress = greatest(a.progress, u.progress), throughput = u.throughput,
                  checkpoint_progress = greatest(a.checkpoint_progress, u.checkpoint_progress)
             FROM unnest(%s::text[], %s::int[], %s::float8[], %s::float8[], %s::float8[])
               AS u (workload, attempt, progress, checkpoint_progress, throughput)
            WHERE a.workload = u.workload AND a.attempt = u.attempt AND a.ended_s IS NULL""",
        (
            [report.key.workload for report in reports],
            [int(report.key.attempt) for report in reports],
            [report.progress for report in reports],
            [report.checkpoint_progress for report in reports],
            [report.throughput for report in reports],
        ),
    )


async def record_checkpoints(connection: AnyConnection, checkpoints: Sequence[tuple[AttemptKey, float, float]]) -> None:
    """Stores (attempt, progress, saved_s) of new checkpoints; known ones are left alone."""
    if checkpoints:
        await connection.execute(
            """INSERT INTO checkpoints (workload, attempt, progress, saved_s)
               SELECT * FROM unnest(%s::text[], %s::int[], %s::float8[], %s::float8[]) ON CONFLICT DO NOTHING""",
            (
                [key.workload for key, _, _ in checkpoints],
                [int(key.attempt) for key, _, _ in checkpoints],
                [progress for _, progress, _ in checkpoints],
                [saved_s for _, _, saved_s in checkpoints],
            ),
        )


async def stops_requested(connection: AnyConnection, region: RegionId) -> list[tuple[AttemptKey, Eviction]]:
    """Live attempts of the region that their users want cancelled or sent back to the queue, sorted by key."""
    cursor = await connection.execute(
        """SELECT a.workload, a.attempt, w.cancel_requested, w.requeue_by
             FROM attempts a JOIN workloads w USING (workload)
            WHERE a.region = %s AND a.ended_s IS NULL AND (w.cancel_requested OR w.requeue_by IS NOT NULL)
            ORDER BY a.workload, a.attempt""",
        (region,),
    )
    return [
        (
            AttemptKey(WorkloadId(workload), AttemptNumber(attempt)),
            Eviction(EvictionCause.CANCELLED) if cancelled else Eviction(EvictionCause.REQUEUED, asked_by=requeue_by),
        )
        for workload, attempt, cancelled, requeue_by in await cursor.fetchall()
    ]


GiveBack: TypeAlias = Callable[[Mapping[AttemptKey, StoredStanding]], Coroutine[Any, Any, None]]
"""Gives the quota of ended attempts back, by where they stood."""


async def record_ends(
    connection: AnyConnection,
    ends: Sequence[RecordEnd],
    requeued: Mapping[WorkloadId, RequeuedEntry],
    give_back: GiveBack | None = None,
) -> dict[AttemptKey, StoredStanding]:
    """Ends attempts; returns those that were live until now (the fence: a second end of one attempt does nothing), and where
    they stood.

    Workloads that return to the queue do so with their entry in `requeued`; one whose next state is PENDING and that
    has none there gets its next attempt from the caller, in the same transaction. Quota is given back by `give_back`,
    while the workloads are moved on; None: by the caller, for the attempts returned.
    """
    if not ends:
        return {}
    cursor = await connection.execute(
        """UPDATE attempts a SET state = %s, ended_s = u.ended_s, "end" = u.ended_as, end_reason = u.reason,
                  exit_code = u.exit_code,
                  progress = greatest(a.progress, u.progress),
                  checkpoint_progress = greatest(a.checkpoint_progress, u.checkpoint_progress)
             FROM unnest(%s::text[], %s::int[], %s::float8[], %s::text[], %s::text[], %s::float8[], %s::float8[], %s::int[])
               AS u (workload, attempt, ended_s, ended_as, reason, progress, checkpoint_progress, exit_code)
            WHERE a.workload = u.workload AND a.attempt = u.attempt AND a.ended_s IS NULL
        RETURNING a.workload, a.attempt, a.priority, a.level, a.within_quota, a.charges""",
        (
            ATTEMPT_ENDED,
            [end.key.workload for end in ends],
            [int(end.key.attempt) for end in ends],
            [end.ended_s for end in ends],
            [end.end for end in ends],
            [end.reason for end in ends],
            [end.progress for end in ends],
            [end.checkpoint_progress for end in ends],
            [end.exit_code for end in ends],
        ),
    )
    ended = _stands(await cursor.fetchall())
    now_ended = [end for end in ends if end.key in ended]
    if give_back is None:
        await _move_workloads_on(connection, now_ended, requeued)
    else:
        await together(connection, _move_workloads_on(connection, now_ended, requeued), give_back(ended))
    returning = [end for end in now_ended if end.key.workload in requeued]
    await insert_entries(
        connection,
        [(end.key.workload, requeued[end.key.workload], end.not_before_s, end.ended_s) for end in returning],
    )
    return ended


async def _move_workloads_on(
    connection: AnyConnection, ends: Sequence[RecordEnd], requeued: Collection[WorkloadId]
) -> None:
    """Completed work counts in full; else only what the last checkpoint holds is left. Service counts in any case. Who sent it
    back to the queue has got that.

    Raises StateChangeRefused when nothing in the table leads from where a workload is to where its attempt leaves it.
    """
    if not ends:
        return
    changes = state_changes(LIVE)
    cursor = await connection.execute(
        """UPDATE workloads w SET state = u.state, failures = w.failures + u.failed::int,
                  reason = CASE WHEN u.requeued AND w.held_by IS NOT NULL THEN 'held by ' || w.held_by ELSE u.reason END,
                  ended_s = u.workload_ended_s,
                  progress = u.progress, checkpoint_progress = greatest(w.checkpoint_progress, u.checkpoint_progress),
                  attained_s = w.attained_s + coalesce(greatest(least(a.leaving_s, a.ended_s) - a.started_s, 0), 0),
                  attained_gpu_s = w.attained_gpu_s + a.received_gpu_s + a.gpus * coalesce(
                      greatest(least(a.leaving_s, a.ended_s) - coalesce(a.received_to_s, a.started_s), 0), 0),
                  first_started_s = coalesce(w.first_started_s, a.started_s),
                  held_by = CASE WHEN u.workload_ended_s IS NULL THEN w.held_by END,
                  requeue_by = CASE WHEN NOT u.requeued AND u.workload_ended_s IS NULL THEN w.requeue_by END
             FROM unnest(%s::text[], %s::int[], %s::text[], %s::text[], %s::bool[], %s::float8[], %s::float8[],
                         %s::float8[], %s::bool[])
               AS u (workload, attempt, state, reason, failed, workload_ended_s, progress, checkpoint_progress, requeued)
             JOIN attempts a USING (workload, attempt),
                  unnest(%s::text[], %s::text[]) AS change (before, after)
            WHERE w.workload = u.workload AND w.state = change.before AND u.state = change.after
        RETURNING w.workload""",
        (
            [end.key.workload for end in ends],
            [int(end.key.attempt) for end in ends],
            [end.next_state.value for end in ends],
            [end.reason for end in ends],
            [end.failed for end in ends],
            [end.ended_s if end.next_state in ENDED else None for end in ends],
            [end.progress if end.next_state is State.COMPLETED else end.checkpoint_progress for end in ends],
            [end.checkpoint_progress for end in ends],
            [end.key.workload in requeued for end in ends],
            [before.value for before, _ in changes],
            [after.value for _, after in changes],
        ),
    )
    moved = len(await cursor.fetchall())
    if moved != len(ends):
        raise StateChangeRefused("the end of an attempt", len(ends), moved)


async def live_among(connection: AnyConnection, keys: Sequence[AttemptKey]) -> set[AttemptKey]:
    """Those of these attempts that have not ended."""
    cursor = await connection.execute(
        """SELECT a.workload, a.attempt FROM attempts a JOIN unnest(%s::text[], %s::int[]) AS u (workload, attempt)
               USING (workload, attempt) WHERE a.ended_s IS NULL""",
        ([key.workload for key in keys], [int(key.attempt) for key in keys]),
    )
    return _keys(await cursor.fetchall())


async def region_of_running(connection: AnyConnection, workload: str) -> RegionId | None:
    """Where an attempt of the workload runs that is not asked to leave; None when there is none."""
    cursor = await connection.execute(
        "SELECT region FROM attempts WHERE workload = %s AND ended_s IS NULL AND state = %s",
        (workload, State.RUNNING.value),
    )
    row = await cursor.fetchone()
    return None if row is None else RegionId(row[0])


def _stands(rows: Sequence[TupleRow]) -> dict[AttemptKey, StoredStanding]:
    """Of rows of workload, attempt, priority, level, within_quota, charges."""
    return {
        AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])): StoredStanding(Standing(row[2], row[3]), row[4], row[5])
        for row in rows
    }


def _keys(rows: Sequence[TupleRow]) -> set[AttemptKey]:
    return {AttemptKey(WorkloadId(row[0]), AttemptNumber(row[1])) for row in rows}
