"""Takes what is over and old out of the database, batch by batch.

1. Find the keys of the next batch, and read its rows.
2. Write them to the archive, if there is one; they are on the disk then.
3. Delete them, in one short transaction.

A crash between 2 and 3 leaves rows in both places, and the next time the same batch is written again. When 2 fails, as on a
full disk, it all ends there: nothing is deleted that is not archived.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Table

from services.database import retention_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.tables.events import EVENTS
from services.retention.archive import Archive

EVENTS_AT_ONCE = 2_000
WORKLOADS_AT_ONCE = 100
ROUNDS_AT_ONCE = 50
"""Small, so that reading a batch stops no loop and deleting it no transaction."""

_PAUSE_REAL_S = 0.01
"""Between two batches: what decides goes first."""


@dataclass(slots=True)
class Pruned:
    """How many rows of each table went, or would go."""

    rows: dict[str, int] = field(default_factory=dict)

    def add(self, table: Table, count: int) -> None:
        self.rows[table.name] = self.rows.get(table.name, 0) + count

    @property
    def total(self) -> int:
        return sum(self.rows.values())


Told = Callable[[Pruned], None]


@dataclass(frozen=True, slots=True)
class _Batch:
    tables: Sequence[Table]
    keys: Sequence[object]


async def prune(
    database: Database, cutoff_s: float, archive: Archive | None, *, dry_run: bool = False, told: Told = lambda _: None
) -> Pruned:
    """Archives and deletes what was over before that time of the service; `told` hears of each batch.

    `dry_run` only counts. Raises ArchiveUnusable when the archive takes no more: what went before is gone.
    """
    if archive is not None and not dry_run:
        await asyncio.to_thread(archive.require_writable)
    pruned = Pruned()
    async for batch in _batches(database, cutoff_s):
        if dry_run:
            for table in batch.tables:
                pruned.add(table, await database.run(partial(_count, table=table, keys=batch.keys)))
        else:
            await _take_out(database, archive, batch, pruned)
            await asyncio.sleep(_PAUSE_REAL_S)
        told(pruned)
    return pruned


async def _take_out(database: Database, archive: Archive | None, batch: _Batch, pruned: Pruned) -> None:
    counts = []
    for table in batch.tables:
        rows = await database.run(partial(_read, table=table, keys=batch.keys))
        if archive is not None:
            # In a thread: writing and waiting for the disk stops no loop that holds a lease.
            await asyncio.to_thread(archive.write, table, rows)
        counts.append(len(rows))
    await database.run(partial(_delete, batch=batch))
    for table, count in zip(batch.tables, counts, strict=True):
        pruned.add(table, count)


async def _batches(database: Database, cutoff_s: float) -> AsyncIterator[_Batch]:
    """Each goes on behind the one before: what a dry run leaves, or is kept, does not come again."""
    workload = ""
    while workloads := await database.run(partial(_workloads, cutoff_s=cutoff_s, after=workload)):
        yield _Batch(retention_store.OF_WORKLOADS, workloads)
        workload = workloads[-1]
    sequence, last = 0, await database.run(partial(_last_event, cutoff_s=cutoff_s))
    while events := await database.run(partial(_events, cutoff_s=cutoff_s, after=sequence, last=last)):
        yield _Batch((EVENTS,), events)
        sequence = events[-1]
    number = 0
    while rounds := await database.run(partial(_rounds, cutoff_s=cutoff_s, after=number)):
        yield _Batch(retention_store.OF_ROUNDS, rounds)
        number = rounds[-1]


async def _workloads(connection: AnyConnection, cutoff_s: float, after: str) -> list[str]:
    return await retention_store.ended_workloads(connection, cutoff_s, after, WORKLOADS_AT_ONCE)


async def _last_event(connection: AnyConnection, cutoff_s: float) -> int:
    return await retention_store.last_old_event(connection, cutoff_s)


async def _events(connection: AnyConnection, cutoff_s: float, after: int, last: int) -> list[int]:
    return await retention_store.old_events(connection, cutoff_s, after, last, EVENTS_AT_ONCE)


async def _rounds(connection: AnyConnection, cutoff_s: float, after: int) -> list[int]:
    return await retention_store.old_rounds(connection, cutoff_s, after, ROUNDS_AT_ONCE)


async def _read(connection: AnyConnection, table: Table, keys: Sequence[object]) -> list[tuple[object, ...]]:
    return await retention_store.read_rows(connection, table, keys)


async def _count(connection: AnyConnection, table: Table, keys: Sequence[object]) -> int:
    return await retention_store.count_rows(connection, table, keys)


async def _delete(connection: AnyConnection, batch: _Batch) -> None:
    await retention_store.delete_rows(connection, batch.tables, batch.keys)
