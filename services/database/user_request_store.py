"""Workloads that their users hold, release, send back to the queue or change: locked, and written, many at a time.

What is held has no entry in the queue, so that nothing that looks at the queue sees it. Locks are taken as a dispatch takes
them: queue entries first, then workloads, each by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from domain.events import Event, EventKind, JsonValue
from domain.identifiers import TenantId, WorkloadId
from domain.life_cycle import QUEUED, Happening, State, state_after
from domain.workload import WorkloadSpecification
from global_scheduler.user_requests import WorkloadToday
from regional_scheduler.refusals.kinds import kind_of
from services.database import dependency_store, event_store
from services.database.changed_workload_store import lock_changes
from services.database.channels import REGION_CHANNEL, SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.dependency_store import HELD_BY_DEPENDENCIES
from services.database.errors import RepeatTransaction
from services.database.label_store import replace_labels
from services.database.requeue_store import RequeuedEntry, change_importance, insert_entries
from services.database.state_guards import before


@dataclass(frozen=True, slots=True)
class LockedWorkload:
    """A workload that stays as it is until the transaction ends."""

    today: WorkloadToday
    tenant: TenantId
    specification: bytes
    attempt: int
    """Its newest; 0: there was none."""


async def lock(connection: AnyConnection, workloads: Sequence[WorkloadId]) -> dict[WorkloadId, LockedWorkload]:
    """Those that there are. Raises RepeatTransaction when one moves between queue and machines at this moment."""
    names = sorted(workloads)
    cursor = await connection.execute(
        "SELECT workload FROM queue_entries WHERE workload = ANY(%s) ORDER BY workload FOR UPDATE", (names,)
    )
    queued = {row[0] for row in await cursor.fetchall()}
    cursor = await connection.execute(
        """SELECT workload, tenant, state, held_by, cancel_requested, requeue_by, specification, attempts, awaits_turn
             FROM workloads WHERE workload = ANY(%s) ORDER BY workload FOR NO KEY UPDATE""",
        (names,),
    )
    rows = await cursor.fetchall()
    # With a statement of its own: it sees what was settled while we waited for the locks.
    waiting = await dependency_store.awaited(connection, [WorkloadId(row[0]) for row in rows if row[3] is not None])
    found: dict[WorkloadId, LockedWorkload] = {}
    for name, tenant, state, held_by, cancelling, requeue_by, specification, attempt, awaits in rows:
        if State(state) in QUEUED and held_by is None and not awaits and name not in queued:
            raise RepeatTransaction(f"workload {name} has just returned to the queue")
        workload = WorkloadId(name)
        held = held_by not in {None, HELD_BY_DEPENDENCIES}
        today = WorkloadToday(
            workload, State(state), held, cancelling, requeue_by is not None, waits=workload in waiting
        )
        found[workload] = LockedWorkload(today, TenantId(tenant), bytes(specification), attempt)
    return found


async def hold(connection: AnyConnection, workloads: Sequence[WorkloadId], held_by: str, reason: str) -> None:
    """They are in no queue from now on; those that are live are not when they return from their machines."""
    await connection.execute("DELETE FROM queue_entries WHERE workload = ANY(%s)", (list(workloads),))
    await connection.execute("DELETE FROM awards WHERE workload = ANY(%s)", (list(workloads),))
    await connection.execute(
        """UPDATE workloads SET held_by = %s, reason = CASE WHEN state = ANY(%s) THEN %s ELSE reason END
            WHERE workload = ANY(%s)""",
        (held_by, before(Happening.HELD), reason, list(workloads)),
    )
    wake_after_commit(connection, SCAN_CHANNEL)


async def release(connection: AnyConnection, workloads: Sequence[WorkloadId]) -> None:
    """Nobody holds them any more."""
    await connection.execute(
        """UPDATE workloads SET held_by = NULL, reason = CASE WHEN state = ANY(%s) THEN '' ELSE reason END
            WHERE workload = ANY(%s)""",
        (before(Happening.RELEASED), list(workloads)),
    )


async def enter_queue(connection: AnyConnection, entries: Mapping[WorkloadId, RequeuedEntry], now: float) -> None:
    """They are in the queue from now on, to be ranked by the next scan pass."""
    await insert_entries(connection, [(workload, entry, 0.0, now) for workload, entry in entries.items()])
    wake_after_commit(connection, SCAN_CHANNEL)


async def ask_to_requeue(connection: AnyConnection, workloads: Sequence[WorkloadId], asked_by: str) -> None:
    """The regions in which they are live stop them."""
    await connection.execute(
        "UPDATE workloads SET requeue_by = %s WHERE workload = ANY(%s)", (asked_by, list(workloads))
    )
    wake_after_commit(connection, REGION_CHANNEL)


async def change(
    connection: AnyConnection,
    changed: Mapping[WorkloadId, tuple[WorkloadSpecification, bytes]],
    *,
    keep_places: bool,
) -> int:
    """This is what they ask for from now on, also in bytes; returns the revision. Unless they keep their places in the queue,
    they are ranked anew before they are in any auction."""
    names = sorted(changed)
    specifications = [changed[name][0] for name in names]
    await lock_changes(connection)
    cursor = await connection.execute(
        """WITH new AS MATERIALIZED (SELECT nextval('workload_revisions') AS revision)
           UPDATE workloads w SET specification = u.specification, asked_priority = u.priority, kind = u.kind,
                  revision = new.revision
             FROM new, unnest(%s::text[], %s::bytea[], %s::smallint[], %s::text[])
               AS u (workload, specification, priority, kind)
            WHERE w.workload = u.workload
        RETURNING w.revision""",
        (
            names,
            [changed[name][1] for name in names],
            [specification.priority for specification in specifications],
            [kind_of(specification) for specification in specifications],
        ),
    )
    rows = await cursor.fetchall()
    await replace_labels(connection, {name: changed[name][0].labels for name in names})
    wake_after_commit(connection, SCAN_CHANNEL)
    wake_after_commit(connection, REGION_CHANNEL)
    if not keep_places:
        await _leave_auctions(connection, names)
        await change_importance(connection, {name: changed[name][0] for name in names})
    return max((int(row[0]) for row in rows), default=0)


async def _leave_auctions(connection: AnyConnection, names: Sequence[WorkloadId]) -> None:
    """What was said of them in auctions counts no more: the next scan pass ranks them, and then they are put up again."""
    await connection.execute("DELETE FROM awards WHERE workload = ANY(%s)", (list(names),))
    await connection.execute(
        """UPDATE queue_entries q SET asked_priority = w.asked_priority, kind = w.kind, priority = NULL, reason = '',
                  state = %s, diagnosis = NULL, asked_in_walk = NULL
             FROM workloads w WHERE w.workload = q.workload AND q.workload = ANY(%s)""",
        (state_after(Happening.CHANGED).value, list(names)),
    )


async def append_events(
    connection: AnyConnection,
    kind: EventKind,
    workloads: Sequence[LockedWorkload],
    details: Mapping[str, JsonValue],
    now: float,
) -> None:
    """That happened to each of these."""
    await event_store.append(
        connection, [Event(now, kind, one.today.workload, tenant=one.tenant, details=details) for one in workloads]
    )
