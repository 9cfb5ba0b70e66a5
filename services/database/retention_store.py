"""What is over and old, in batches: found, read for the archive, deleted.

Nothing is touched that anybody may still need: workloads that have not ended keep all they have, whatever its age; so do
those whose use is not counted yet, for credit or for tables. Events of violations stay, for they are counted.

Workloads themselves, with their outcome and their key against repetition, go last and by an age of their own: when nothing else is
left of them that they had, nobody waits for them, and all elements of their array are as old. What is counted of them stays: run times by
name, and GPU-hours.

What has ended changes no more: a batch is found and deleted in two transactions without locks in between, and a deletion
locks nothing that anybody waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg.rows import TupleRow
from sqlalchemy import BigInteger, Column, LargeBinary, MetaData, Table, Text, cast, delete, func, select
from sqlalchemy.dialects.postgresql import JSONB

from domain.events import EventKind
from domain.life_cycle import ENDED, State
from services.database.connection import AnyConnection
from services.database.core_statements import any_of, execute
from services.database.state_guards import quoted
from services.database.tables.attempts import (
    ATTEMPT_CELLS,
    ATTEMPTS,
    CHECKPOINTS,
    PLACEMENT_REVISIONS,
    PLACEMENTS,
)
from services.database.tables.auctions import AUCTION_RESPONSES, AUCTION_ROUNDS
from services.database.tables.notifications import NOTIFIED_WORKLOADS
from services.database.tables.packages import WORKLOAD_PACKAGES
from services.database.tables.workloads import (
    JOBS,
    WORKLOAD_DEPENDENCIES,
    WORKLOAD_LABELS,
    WORKLOAD_TABLES,
    WORKLOADS,
)

OF_WORKLOADS: Final = (ATTEMPTS, PLACEMENTS, ATTEMPT_CELLS, PLACEMENT_REVISIONS, CHECKPOINTS)
OUTCOMES: Final = Table(
    WORKLOADS.name,
    MetaData(),
    *(
        Column(column.name, column.type, primary_key=column.primary_key, nullable=column.nullable)
        for column in WORKLOADS.columns
        if not isinstance(column.type, LargeBinary)
    ),
)
"""Workloads as they are archived: without what their users said, which may have secrets."""

OF_FORGOTTEN: Final = (
    OUTCOMES,
    JOBS,
    WORKLOAD_TABLES,
    WORKLOAD_LABELS,
    WORKLOAD_DEPENDENCIES,
    WORKLOAD_PACKAGES,
)
"""Workloads, and what was said with them."""

NOT_ARCHIVED: Final = (NOTIFIED_WORKLOADS,)
"""Goes with workloads, and is in no archive: it may have secrets."""

OF_ROUNDS: Final = (AUCTION_ROUNDS, AUCTION_RESPONSES)

_ENDS = ", ".join(f"'{kind.value}'" for kind in (EventKind.COMPLETED, EventKind.FAILED, EventKind.CANCELLED))

_COUNTED = "coalesce((SELECT max(through_sequence) FROM data_use_counted WHERE what = 'events'), 0)"
"""Up to which event it is counted which tables ended workloads read: that needs their ends, attempts and placements."""

_TOLD = "coalesce((SELECT max(through_sequence) FROM notification_progress), 0)"
"""Up to which event it is known what is to be told of it to whom workloads want to be told."""

_ENDED_WORKLOADS = f"""
    SELECT DISTINCT a.workload FROM attempts a JOIN workloads w USING (workload)
     WHERE a.workload > %(after)s AND a.ended_s < %(cutoff_s)s AND w.ended_s < %(cutoff_s)s
       AND w.state IN ({quoted(ENDED)})
       AND NOT EXISTS (SELECT FROM attempts other WHERE other.workload = a.workload
                          AND (other.ended_s IS NULL OR other.counted_s IS DISTINCT FROM other.ended_s))
       AND NOT EXISTS (SELECT FROM events e WHERE e.workload = a.workload AND e.sequence > {_COUNTED}
                          AND e.event IN ({_ENDS}))
     ORDER BY a.workload LIMIT %(limit)s"""

_OLD_EVENTS = f"""
    SELECT e.sequence FROM events e
     WHERE e.sequence > %(after)s AND e.sequence <= %(last)s AND e.t < %(cutoff_s)s
       AND e.event <> '{EventKind.INVARIANT_BROKEN.value}'
       AND NOT EXISTS (SELECT FROM workloads w WHERE w.workload = e.workload
                          AND (w.ended_s IS NULL OR w.ended_s >= %(cutoff_s)s))
       AND NOT EXISTS (SELECT FROM notified_workloads n WHERE n.workload = e.workload AND e.sequence > {_TOLD})
     ORDER BY e.sequence LIMIT %(limit)s"""


def _stays(workload: str) -> str:
    """Why a workload, which has that alias, does not go (yet). Of a dry run: also what it has that would stay itself."""
    return f"""({workload}.ended_s IS NULL OR {workload}.ended_s >= %(workloads_cutoff_s)s
            OR {workload}.state NOT IN ({quoted(ENDED)})
            OR ({workload}.state = '{State.COMPLETED.value}' AND NOT {workload}.run_counted AND NOT %(dry_run)s)
            OR EXISTS (SELECT FROM attempts a WHERE a.workload = {workload}.workload
                          AND (NOT %(dry_run)s OR a.ended_s IS NULL OR a.counted_s IS DISTINCT FROM a.ended_s))
            OR EXISTS (SELECT FROM events e WHERE e.workload = {workload}.workload
                          AND e.event <> '{EventKind.INVARIANT_BROKEN.value}'
                          AND (NOT %(dry_run)s OR e.t >= %(cutoff_s)s OR e.sequence > {_COUNTED}
                               OR (e.sequence > {_TOLD}
                                   AND EXISTS (SELECT FROM notified_workloads n WHERE n.workload = e.workload))))
            OR EXISTS (SELECT FROM notification_deliveries n WHERE n.workload = {workload}.workload)
            OR EXISTS (SELECT FROM workload_dependencies d WHERE d.needs = {workload}.workload AND NOT d.settled))"""


_FORGOTTEN = f"""
    SELECT w.workload FROM workloads w
     WHERE w.workload > %(after)s AND w.array_id IS NULL AND NOT {_stays("w")}
     ORDER BY w.workload LIMIT %(limit)s"""

# What an array is follows from its elements, so they go together. By the first one each array is looked at once.
_FORGOTTEN_ARRAY = f"""
    SELECT f.array_id FROM workloads f
     WHERE f.array_id > %(after)s AND NOT f.beside_first AND f.ended_s < %(workloads_cutoff_s)s
       AND NOT EXISTS (SELECT FROM workload_dependencies d WHERE d.needs = f.array_id AND NOT d.settled)
       AND NOT EXISTS (SELECT FROM workloads o WHERE o.array_id = f.array_id AND {_stays("o")})
     ORDER BY f.array_id LIMIT 1"""

_LAST_OLD_EVENT = f"SELECT coalesce(least(max(sequence), {_COUNTED}), 0) FROM events WHERE t < %(cutoff_s)s"

# The newest round stays: the next one is numbered by it. So do those of which something is yet to be dispatched.
_OLD_ROUNDS = """
    SELECT r.round FROM auction_rounds r
     WHERE r.round > %(after)s AND r.closed_at IS NOT NULL AND r.now_s < %(cutoff_s)s
       AND r.round < (SELECT max(round) FROM auction_rounds)
       AND NOT EXISTS (SELECT FROM awards a WHERE a.round = r.round)
     ORDER BY r.round LIMIT %(limit)s"""


async def ended_workloads(connection: AnyConnection, cutoff_s: float, after: str, limit: int) -> list[str]:
    """The next workloads by name that ended before, of whose attempts anything is left and nothing is needed."""
    cursor = await connection.execute(_ENDED_WORKLOADS, {"cutoff_s": cutoff_s, "after": after, "limit": limit})
    return [row[0] for row in await cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Which workloads go."""

    workloads_cutoff_s: float
    """Those that ended before."""
    dry_run_s: float | None = None
    """None: of which nothing else is left. Else: of which nothing else would be left if what was over before that went."""

    def facts(self, after: str) -> dict[str, object]:
        return {
            "workloads_cutoff_s": self.workloads_cutoff_s,
            "dry_run": self.dry_run_s is not None,
            "cutoff_s": self.dry_run_s or 0.0,
            "after": after,
        }


async def forgotten_workloads(connection: AnyConnection, which: Forgetting, after: str, limit: int) -> list[str]:
    """The next ones by name that go and belong to no array."""
    cursor = await connection.execute(_FORGOTTEN, {**which.facts(after), "limit": limit})
    return [row[0] for row in await cursor.fetchall()]


async def forgotten_array(connection: AnyConnection, which: Forgetting, after: str) -> tuple[str, list[str]] | None:
    """The next array by name of which all elements go, with these; None: there is none."""
    row = await (await connection.execute(_FORGOTTEN_ARRAY, which.facts(after))).fetchone()
    if row is None:
        return None
    cursor = await connection.execute("SELECT workload FROM workloads WHERE array_id = %s ORDER BY workload", [row[0]])
    return row[0], [element for (element,) in await cursor.fetchall()]


async def delete_empty_arrays(connection: AnyConnection) -> None:
    """What is said of arrays of which no element is left."""
    await connection.execute(
        "DELETE FROM workload_arrays a WHERE NOT EXISTS (SELECT FROM workloads w WHERE w.array_id = a.array_id)"
    )


async def last_old_event(connection: AnyConnection, cutoff_s: float) -> int:
    """The last place in the log of an event from before that is counted; 0: there is none."""
    cursor = await connection.execute(_LAST_OLD_EVENT, {"cutoff_s": cutoff_s})
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def old_events(connection: AnyConnection, cutoff_s: float, after: int, last: int, limit: int) -> list[int]:
    """The places of the next events from before, up to `last`, that belong to no workload or to one that ended before."""
    cursor = await connection.execute(_OLD_EVENTS, {"cutoff_s": cutoff_s, "after": after, "last": last, "limit": limit})
    return [row[0] for row in await cursor.fetchall()]


async def old_rounds(connection: AnyConnection, cutoff_s: float, after: int, limit: int) -> list[int]:
    """The next auction rounds that were closed and planned with a time before."""
    cursor = await connection.execute(_OLD_ROUNDS, {"cutoff_s": cutoff_s, "after": after, "limit": limit})
    return [row[0] for row in await cursor.fetchall()]


async def read_rows(connection: AnyConnection, table: Table, keys: Sequence[object]) -> list[TupleRow]:
    """The rows of a table whose first key is one of these, by key; documents as text."""
    columns = [cast(column, Text) if isinstance(column.type, JSONB) else column for column in table.columns]
    statement = select(*columns).where(any_of(_first_key(table), keys)).order_by(*table.primary_key.columns)
    cursor = await execute(connection, statement)
    return await cursor.fetchall()


async def count_rows(connection: AnyConnection, table: Table, keys: Sequence[object]) -> int:
    """How many rows `read_rows` would give."""
    statement = select(cast(func.count(), BigInteger)).select_from(table).where(any_of(_first_key(table), keys))
    row = await (await execute(connection, statement)).fetchone()
    return 0 if row is None else int(row[0])


async def delete_rows(connection: AnyConnection, tables: Sequence[Table], keys: Sequence[object]) -> None:
    """Deletes the rows of these tables whose first key is one of these, those that refer to others first."""
    for table in reversed(tables):
        await execute(connection, delete(table).where(any_of(_first_key(table), keys)))


def _first_key(table: Table) -> Column[Any]:
    return next(iter(table.primary_key.columns))
