"""What of the queue is new since an earlier look at it: PostgreSQL says which transaction wrote a row.

A row that was written by a transaction which had ended when the earlier snapshot was taken was there, as it is, in that snapshot. So nothing
has to be recorded by those who change the queue, and nothing that they forget can be missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.database.columns import packed, unpacked
from services.database.connection import AnyConnection
from services.database.queue_rows import NUMBER_OF_NAME, QUEUE_COLUMNS, QueueRows, rows_from

_ALL = QUEUE_COLUMNS.format(which="true")
_NAMED = QUEUE_COLUMNS.format(which="workload = ANY(%s)")
# Numbers of transactions go round after 2^32: what is less than half of that ahead counts as later. At worst a row that has not
# changed for two thousand million transactions is read once more.
_SEEN = f"""
    SELECT count(*), {packed(NUMBER_OF_NAME)},
           array_agg(workload) FILTER (WHERE ((xmin::text::bigint - %s::bigint) & 4294967295) < 2147483648)
      FROM queue_entries"""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a snapshot was taken."""

    server: str
    """When the server was started that has taken it: another one may know other transactions by the same numbers."""
    ended_before: int
    """All transactions of lesser numbers had ended."""


async def moment(connection: AnyConnection) -> Moment:
    """Of the snapshot of this transaction."""
    cursor = await connection.execute(
        "SELECT pg_postmaster_start_time()::text, pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    )
    row = await cursor.fetchone()
    if row is None:
        raise LookupError("the server does not say which transactions have ended")
    return Moment(row[0], int(row[1]))


async def load_all(connection: AnyConnection) -> QueueRows:
    """The whole queue."""
    return await _load(connection, _ALL, ())


@dataclass(frozen=True, slots=True, eq=False)
class QueueChanges:
    """What must be known to bring rows of the queue up to date."""

    changed: QueueRows
    """Those that are new, or written anew, and perhaps some that are not."""
    present: NDArray[np.generic]
    """The numbers of the names of all that is queued."""


async def load_changes(connection: AnyConnection, since: Moment) -> QueueChanges:
    """Since that moment of the same server. Each row is looked at once; those that have changed are found by their names."""
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(_SEEN, (since.ended_before,))
        row = await cursor.fetchone()
    if row is None:
        raise LookupError("an aggregate without a row")
    changed = await _load(connection, _NAMED, (row[2] or [],))
    return QueueChanges(changed, unpacked(row[1], "int8", int(row[0])))


async def _load(connection: AnyConnection, statement: str, parameters: Sequence[object]) -> QueueRows:
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(statement, parameters)
        row = await cursor.fetchone()
    if row is None:
        raise LookupError("an aggregate without a row")
    # A hundred thousand names take a while: calls are answered meanwhile.
    return await asyncio.to_thread(rows_from, row)
