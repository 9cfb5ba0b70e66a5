"""What is to be told to whom: found in the event log, kept until it is delivered or given up.

The place up to which the log was read moves in the transaction that stores what was found there: nothing is found twice, and
nothing is missed, whoever ends when. What is sent may be sent twice (its sender ends before it can note the answer): receivers
know it by the name of the delivery.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from domain.events import Event, EventKind
from domain.identifiers import RegionId, TenantId, WorkloadId
from domain.notification import TOLD_KINDS, Notification, host_of
from services.database import event_store
from services.database.array_text import number_array, text_array
from services.database.connection import AnyConnection

_FOUND_AT_ONCE = 500
_FAR_BEHIND = 10_000
"""The stored place moves when something was found, or when so many events have come by in which nothing was."""


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """An event of a workload that wants somebody to be told, with what is said of the workload."""

    sequence: int
    event: Event
    host: str
    events: tuple[str, ...]
    """Of what the receiver wants to be told."""
    name: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class FoundEvents:
    """A stretch of the log."""

    events: tuple[FoundEvent, ...]
    through: int
    complete: bool
    """True when this reached the end of what can be read now."""
    worth_storing: bool


@dataclass(frozen=True, slots=True)
class NewDelivery:
    """Something to be told."""

    workload: WorkloadId
    sequence: int
    host: str
    body: str


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """Something to be told now."""

    workload: WorkloadId
    sequence: int
    host: str
    url: str
    body: str
    tries: int
    """So many have failed."""
    made_real_s: float

    @property
    def name(self) -> str:
        """By which its receiver knows a repetition."""
        return delivery_name(self.workload, self.sequence)


@dataclass(frozen=True, slots=True)
class NotificationState:
    """How telling goes for one workload; times are real seconds since the epoch."""

    host: str
    delivered: int
    given_up: int
    error: str
    waiting: int
    failing_since_real_s: float | None
    """Of the oldest that waits."""
    due_real_s: float | None


def delivery_name(workload: WorkloadId, sequence: int) -> str:
    return f"{workload}.{sequence}"


async def insert_notified(connection: AnyConnection, wanted: Iterable[tuple[WorkloadId, Notification]]) -> None:
    """Of workloads that are being stored; most want nothing, and cost nothing."""
    rows = list(wanted)
    if not rows:
        return
    async with connection.cursor() as cursor:
        await cursor.executemany(
            "INSERT INTO notified_workloads (workload, url, host, events) VALUES (%s, %s, %s, %s)",
            [(workload, one.url, host_of(one.url), [*one.occasions]) for workload, one in rows],
        )


async def find(connection: AnyConnection, after: int | None) -> FoundEvents:
    """What happened since to workloads that want somebody to be told; `after` None: since the stored place."""
    cursor = await connection.execute("SELECT through_sequence FROM notification_progress")
    stored = await cursor.fetchone()
    stored_place = 0 if stored is None else int(stored[0])
    begin = stored_place if after is None else max(after, stored_place)
    horizon = await event_store.newest_sequence(connection)
    cursor = await connection.execute(
        """SELECT e.sequence, e.t, e.event, e.workload, e.attempt, e.tenant, e.region, e.details - 'placement', n.host,
                  n.events, w.name,
                  coalesce((SELECT jsonb_object_agg(l.key, l.value) FROM workload_labels l WHERE l.workload = e.workload),
                           '{}')
             FROM events e JOIN notified_workloads n USING (workload) JOIN workloads w USING (workload)
            WHERE e.sequence > %s AND e.sequence <= %s AND e.event = ANY(%s) ORDER BY e.sequence LIMIT %s""",
        (begin, horizon, [kind.value for kind in TOLD_KINDS], _FOUND_AT_ONCE),
    )
    found = tuple(
        FoundEvent(
            sequence=row[0],
            event=Event(
                t=row[1],
                event=EventKind(row[2]),
                workload=WorkloadId(row[3]),
                attempt=row[4],
                tenant=None if row[5] is None else TenantId(row[5]),
                region=None if row[6] is None else RegionId(row[6]),
                details=row[7],
            ),
            host=row[8],
            events=tuple(row[9]),
            name=row[10],
            labels=row[11],
        )
        for row in await cursor.fetchall()
    )
    if len(found) == _FOUND_AT_ONCE:
        return FoundEvents(found, found[-1].sequence, complete=False, worth_storing=True)
    through = max(begin, horizon)
    far = through - stored_place > _FAR_BEHIND
    return FoundEvents(found, through, complete=True, worth_storing=bool(found) or far)


async def store(connection: AnyConnection, new: Sequence[NewDelivery], through: int, now_real_s: float) -> None:
    """To be sent at once; from now on the log is read after that place."""
    if new:
        await connection.execute(
            """INSERT INTO notification_deliveries (workload, sequence, host, body, made_real_s, due_real_s)
               SELECT u.workload, u.sequence, u.host, u.body, %s, %s
                 FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[]) AS u (workload, sequence, host, body)
                   ON CONFLICT DO NOTHING""",
            (
                now_real_s,
                now_real_s,
                text_array(one.workload for one in new),
                number_array(one.sequence for one in new),
                text_array(one.host for one in new),
                text_array(one.body for one in new),
            ),
        )
    await connection.execute(
        """INSERT INTO notification_progress (one, through_sequence) VALUES (true, %s)
               ON CONFLICT (one) DO UPDATE
              SET through_sequence = greatest(notification_progress.through_sequence, excluded.through_sequence)""",
        (through,),
    )


async def due(
    connection: AnyConnection,
    now_real_s: float,
    per_host: int,
    at_most: int,
    under_way: Collection[WorkloadId],
    without_hosts: Collection[str],
) -> list[DueDelivery]:
    """What is to be sent now: of each workload the oldest alone, and of each host so many at most, the longest due first; the first of
    every host before the second of any.

    Of workloads of which something is under way nothing, and nothing of these hosts. It reads all that is due: ask for many.
    """
    cursor = await connection.execute(
        """SELECT workload, sequence, host, url, body, tries, made_real_s
             FROM (SELECT d.*, n.url,
                          row_number() OVER (PARTITION BY d.host ORDER BY d.due_real_s, d.workload) AS place
                     FROM notification_deliveries d JOIN notified_workloads n USING (workload)
                    WHERE d.due_real_s <= %s AND d.workload <> ALL(%s) AND d.host <> ALL(%s)
                      AND NOT EXISTS (SELECT FROM notification_deliveries earlier
                                       WHERE earlier.workload = d.workload AND earlier.sequence < d.sequence)) AS found
            WHERE place <= %s ORDER BY place, due_real_s, workload LIMIT %s""",
        (now_real_s, sorted(under_way), sorted(without_hosts), per_host, at_most),
    )
    return [DueDelivery(WorkloadId(row[0]), *row[1:]) for row in await cursor.fetchall()]


async def next_due_real_s(connection: AnyConnection, after_real_s: float) -> float | None:
    """When the next one is due that is not yet; None: there is none."""
    cursor = await connection.execute(
        "SELECT min(due_real_s) FROM notification_deliveries WHERE due_real_s > %s", (after_real_s,)
    )
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def delivered(connection: AnyConnection, delivery: DueDelivery) -> None:
    """It was answered well. Said again it changes nothing."""
    await _end(connection, delivery, "delivered", "")


async def given_up(connection: AnyConnection, delivery: DueDelivery, error: str) -> None:
    """It is not sent any more. Said again it changes nothing."""
    await _end(connection, delivery, "given_up", error)


async def _end(connection: AnyConnection, delivery: DueDelivery, how: str, error: str) -> None:
    cursor = await connection.execute(
        "DELETE FROM notification_deliveries WHERE workload = %s AND sequence = %s",
        (delivery.workload, delivery.sequence),
    )
    if cursor.rowcount:
        await connection.execute(
            """UPDATE notified_workloads
                  SET delivered = delivered + %s, given_up = given_up + %s, error = %s WHERE workload = %s""",
            (int(how == "delivered"), int(how == "given_up"), error, delivery.workload),
        )


async def failed(
    connection: AnyConnection, delivery: DueDelivery, error: str, now_real_s: float, due_real_s: float
) -> None:
    """It is sent again then."""
    await connection.execute(
        """UPDATE notification_deliveries
              SET tries = %s, due_real_s = %s, failing_since_real_s = coalesce(failing_since_real_s, %s)
            WHERE workload = %s AND sequence = %s""",
        (delivery.tries + 1, due_real_s, now_real_s, delivery.workload, delivery.sequence),
    )
    await connection.execute("UPDATE notified_workloads SET error = %s WHERE workload = %s", (error, delivery.workload))


async def states_of(connection: AnyConnection, workloads: Sequence[WorkloadId]) -> dict[WorkloadId, NotificationState]:
    """How it goes, by workload; those that want nobody to be told are left out."""
    if not workloads:
        return {}
    cursor = await connection.execute(
        """SELECT n.workload, n.host, n.delivered, n.given_up, n.error, count(d.sequence)::int,
                  (array_agg(d.failing_since_real_s ORDER BY d.sequence))[1],
                  (array_agg(d.due_real_s ORDER BY d.sequence))[1]
             FROM notified_workloads n LEFT JOIN notification_deliveries d USING (workload)
            WHERE n.workload = ANY(%s) GROUP BY n.workload""",
        (list(workloads),),
    )
    return {WorkloadId(row[0]): NotificationState(*row[1:]) for row in await cursor.fetchall()}
