"""The event log: appended in the transaction that made the events true, read in an order that never changes.

An event's sequence is its transaction's id and its place within the transaction. Readers stop below the oldest
transaction that is still running, so that nothing ever appears behind them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from domain.events import Event, EventKind
from domain.identifiers import ClusterId, RegionId, TenantId, WorkloadId
from services.database.channels import EVENT_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit

PLACE_BITS = 20
"""A transaction has room for a million events."""

# Where this transaction's events go on: behind those that it has written already.
FIRST_SEQUENCE = sql.SQL(
    """(SELECT coalesce(max(sequence) + 1, own.first) AS first
          FROM (SELECT pg_current_xact_id()::text::bigint << {bits} AS first) own
          LEFT JOIN events ON sequence >= own.first AND sequence < own.first + (1 << {bits})
         GROUP BY own.first)"""
).format(bits=sql.Literal(PLACE_BITS))

_APPEND = sql.SQL(
    """INSERT INTO events (sequence, t, event, workload, attempt, tenant, priority, level, region, cluster, details)
       SELECT base.first + u.place - 1, u.t, u.event, u.workload, u.attempt, u.tenant, u.priority, u.level, u.region,
              u.cluster, u.details::jsonb
         FROM {first_sequence} AS base,
              unnest(%s::float8[], %s::text[], %s::text[], %s::int[], %s::text[], %s::smallint[], %s::smallint[],
                     %s::text[], %s::text[], %s::text[]) WITH ORDINALITY
              AS u (t, event, workload, attempt, tenant, priority, level, region, cluster, details, place)"""
).format(first_sequence=FIRST_SEQUENCE)

# Below this, no transaction can add anything any more.
_HORIZON = sql.SQL("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint << {bits}").format(
    bits=sql.Literal(PLACE_BITS)
)

_COLUMNS = "sequence, t, event, workload, attempt, tenant, priority, level, region, cluster, details"


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events to read; what is None or empty excludes nothing."""

    workload: WorkloadId | None = None
    tenant: TenantId | None = None
    kinds: tuple[EventKind, ...] = ()


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
            [event.t for event in events],
            [event.event.value for event in events],
            [event.workload for event in events],
            [event.attempt for event in events],
            [event.tenant for event in events],
            [event.priority for event in events],
            [event.level for event in events],
            [event.region for event in events],
            [event.cluster for event in events],
            [details_json(event) for event in events],
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
    conditions = [sql.SQL("sequence > %s AND sequence < %s")]
    parameters: list[object] = [after_sequence, horizon]
    if wanted.workload is not None:
        conditions.append(sql.SQL("workload = %s"))
        parameters.append(wanted.workload)
    if wanted.tenant is not None:
        conditions.append(sql.SQL("tenant = %s"))
        parameters.append(wanted.tenant)
    if wanted.kinds:
        conditions.append(sql.SQL("event = ANY(%s)"))
        parameters.append([kind.value for kind in wanted.kinds])
    query = sql.SQL("SELECT {columns} FROM events WHERE {conditions} ORDER BY sequence LIMIT %s").format(
        columns=sql.SQL(_COLUMNS), conditions=sql.SQL(" AND ").join(conditions)
    )
    cursor = await connection.execute(query, (*parameters, limit))
    events = tuple(StoredEvent(row[0], _event(row[1:])) for row in await cursor.fetchall())
    if len(events) == limit:
        return EventPage(events, events[-1].sequence, complete=False)
    return EventPage(events, max(after_sequence, horizon - 1), complete=True)


async def newest_sequence(connection: AnyConnection) -> int:
    """The end of what can be read now: for who wants only what is still to come."""
    return await _horizon(connection) - 1


async def _horizon(connection: AnyConnection) -> int:
    cursor = await connection.execute(_HORIZON)
    row = await cursor.fetchone()
    if row is None:
        raise LookupError("the server does not tell its oldest transaction")
    return int(row[0])


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
