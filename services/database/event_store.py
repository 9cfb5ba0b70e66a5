"""The event log: appended in the transaction that made the events true, read in an order that never changes.

An event takes its place when it is appended, but can be read only after the commit, and transactions do not commit in
the order of their events. So a writer holds a lock that names a place before all of its own (a shared advisory
lock: no process waits for it), and readers stop at the earliest place named. In this order nothing is missed:

1. The writer reads the last place taken, locks it, and only then takes places. Its events become visible with the
   commit, and only then the lock goes.
2. The reader reads the last place taken, then the locks, and only then the events. A writer that had taken a place by
   the first step and has no lock in the second has committed (or given up) before the third.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, literal_column, select

from domain.events import Event, EventKind
from domain.identifiers import ClusterId, RegionId, TenantId, WorkloadId
from services.database.array_text import number_array, text_array
from services.database.channels import EVENT_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.core_statements import any_of, execute
from services.database.label_store import LabelCondition, meets
from services.database.tables.events import EVENTS

_LOCK_TAG = 101
"""The top byte of these locks' keys; the place is in the others."""

_LAST_PLACE = "SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END AS place FROM events_sequence_seq"

_LOCK = f"SELECT pg_advisory_xact_lock_shared(({_LOCK_TAG}::bigint << 56) | place) FROM ({_LAST_PLACE}) AS last"

_APPEND = f"""
    WITH locked AS MATERIALIZED ({_LOCK})
    INSERT INTO events (sequence, t, event, workload, attempt, tenant, priority, level, region, cluster, details)
    SELECT nextval('events_sequence_seq'), u.t, u.event, u.workload, u.attempt, u.tenant, u.priority, u.level, u.region,
           u.cluster, u.details::jsonb
      FROM locked, unnest(%s::float8[], %s::text[], %s::text[], %s::int[], %s::text[], %s::smallint[], %s::smallint[],
                          %s::text[], %s::text[], %s::text[])
        AS u (t, event, workload, attempt, tenant, priority, level, region, cluster, details)"""

_EARLIEST_LOCKED = f"""
    SELECT min(((classid::bigint & 16777215) << 32) | objid::bigint) FROM pg_locks
     WHERE locktype = 'advisory' AND objsubid = 1 AND (classid::bigint >> 24) = {_LOCK_TAG}
       AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""

_STORED = select(
    EVENTS.c.sequence,
    EVENTS.c.t,
    EVENTS.c.event,
    EVENTS.c.workload,
    EVENTS.c.attempt,
    EVENTS.c.tenant,
    EVENTS.c.priority,
    EVENTS.c.level,
    EVENTS.c.region,
    EVENTS.c.cluster,
    EVENTS.c.details,
)


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events to read; what is None or empty excludes nothing."""

    workload: WorkloadId | None = None
    tenant: TenantId | None = None
    kinds: tuple[EventKind, ...] = ()
    labels: tuple[LabelCondition, ...] = ()
    """Of their workloads, as they are now; what is of no workload is left out then."""
    owners: tuple[str, ...] | None = None
    """Only what happened to workloads of these tenants."""


EVERYTHING = EventFilter()


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event and its place in the log."""

    sequence: int
    event: Event


@dataclass(frozen=True, slots=True)
class EventPage:
    """A stretch of the log: every event that passes the filter, up to `through`."""

    events: tuple[StoredEvent, ...]
    through: int
    """Where to go on: read after this next time. Grows also when no event passes the filter."""
    complete: bool
    """True when this reached the end of what can be read now."""


async def append(connection: AnyConnection, events: Sequence[Event]) -> None:
    """Adds events to the log, in this order and behind those that this transaction has added already.

    A NUL character in the details, which PostgreSQL cannot hold, becomes U+FFFD. Raises ValueError for a number that
    is not finite.
    """
    if not events:
        return
    await connection.execute(
        _APPEND,
        (
            number_array(float(event.t) for event in events),
            text_array(event.event.value for event in events),
            text_array(event.workload for event in events),
            number_array(event.attempt for event in events),
            text_array(event.tenant for event in events),
            number_array(event.priority for event in events),
            number_array(event.level for event in events),
            text_array(event.region for event in events),
            text_array(event.cluster for event in events),
            text_array(details_json(event) for event in events),
        ),
    )
    wake_after_commit(connection, EVENT_CHANNEL)


def details_json(event: Event) -> str:
    """The details as they are stored."""
    if not event.details:
        return "{}"
    return json.dumps(dict(event.details), allow_nan=False).replace("\\u0000", "\\ufffd")


async def read(
    connection: AnyConnection, after_sequence: int, limit: int, wanted: EventFilter = EVERYTHING
) -> EventPage:
    """The next events after a place in the log, at most `limit`, oldest first."""
    horizon = await _horizon(connection)
    conditions = [EVENTS.c.sequence > after_sequence, EVENTS.c.sequence <= horizon]
    if wanted.workload is not None:
        conditions.append(EVENTS.c.workload == wanted.workload)
    if wanted.tenant is not None:
        conditions.append(EVENTS.c.tenant == wanted.tenant)
    if wanted.owners is not None:
        conditions.append(any_of(EVENTS.c.tenant, wanted.owners))
    if wanted.kinds:
        conditions.append(any_of(EVENTS.c.event, [kind.value for kind in wanted.kinds]))
    if wanted.labels:
        conditions += [EVENTS.c.workload.is_not(None), *meets(EVENTS.c.workload, wanted.labels)]
    cursor = await execute(connection, _STORED.where(*conditions).order_by(EVENTS.c.sequence).limit(limit))
    events = tuple(StoredEvent(row[0], _event(row[1:])) for row in await cursor.fetchall())
    if len(events) == limit:
        return EventPage(events, events[-1].sequence, complete=False)
    return EventPage(events, max(after_sequence, horizon), complete=True)


async def newest_sequence(connection: AnyConnection) -> int:
    """The end of what can be read now: for readers that want only what is still to come."""
    return await _horizon(connection)


async def count_violations(connection: AnyConnection) -> dict[RegionId, int]:
    """How often each region found an invariant broken, as far as it ever did."""
    # A literal: predicates of partial indexes are matched with those of queries by text.
    violated = EVENTS.c.event == literal_column(f"'{EventKind.INVARIANT_BROKEN.value}'")
    counted = select(EVENTS.c.region, func.count()).where(violated).group_by(EVENTS.c.region)
    cursor = await execute(connection, counted)
    return {RegionId(region): int(count) for region, count in await cursor.fetchall() if region is not None}


async def prepare_to_append(connection: AnyConnection) -> None:
    """For callers that copy events into the table themselves: call this before. (`append` does it itself.)"""
    await connection.execute(_LOCK)
    wake_after_commit(connection, EVENT_CHANNEL)


async def _horizon(connection: AnyConnection) -> int:
    """The last place up to which nothing is missing."""
    cursor = await connection.execute(_LAST_PLACE)
    last = await cursor.fetchone()
    cursor = await connection.execute(_EARLIEST_LOCKED)
    locked = await cursor.fetchone()
    if last is None or locked is None:
        raise LookupError("the server does not say how far the event log goes")
    return int(last[0]) if locked[0] is None else min(int(last[0]), int(locked[0]))


def _event(row: Sequence[object]) -> Event:
    t, kind, workload, attempt, tenant, priority, level, region, cluster, details = row
    if not isinstance(details, dict):
        raise TypeError(f"the details of an event are {details!r}, not an object")
    return Event(
        t=float(str(t)),
        event=EventKind(str(kind)),
        workload=None if workload is None else WorkloadId(str(workload)),
        attempt=None if attempt is None else int(str(attempt)),
        tenant=None if tenant is None else TenantId(str(tenant)),
        priority=None if priority is None else int(str(priority)),
        level=None if level is None else int(str(level)),
        region=None if region is None else RegionId(str(region)),
        cluster=None if cluster is None else ClusterId(str(cluster)),
        details=details,
    )
