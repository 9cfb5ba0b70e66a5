"""Takes what is over and old out of the database, batch by batch.

1. Find the keys of the next batch, and read its rows.
2. Write them to the archive, if there is one; they are on the disk then.
3. Delete them, in one short transaction.

A crash between 2 and 3 leaves rows in both places, and the next time the same batch is written again. When 2 fails, as on a
full disk, it all ends there: nothing is deleted that is not archived.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Table

from services.database import completed_store, retention_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.retention_store import Forgetting
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
    not_archived: Sequence[Table] = ()
    """Deleted with the others, and not counted."""


async def prune(
    database: Database,
    cutoff_s: float,
    archive: Archive | None,
    *,
    workloads_cutoff_s: float | None = None,
    dry_run: bool = False,
    told: Told = lambda _: None,
) -> Pruned:
    """Archives and deletes what was over before that time of the service; `told` hears of each batch.

    `workloads_cutoff_s`: workloads that ended before that go as well, when nothing else is left of them; None: all stay. `dry_run` only
    counts. Raises ArchiveUnusable when the archive takes no more: what went before is gone.
    """
    if archive is not None and not dry_run:
        await asyncio.to_thread(archive.require_writable)
    if workloads_cutoff_s is not None and not dry_run:
        await _count_run_times(database)
    pruned = Pruned()
    async for batch in _batches(database, cutoff_s, workloads_cutoff_s, dry_run=dry_run):
        if dry_run:
            for table in batch.tables:
                pruned.add(table, await database.run(partial(_count, table=table, keys=batch.keys)))
        else:
            await _take_out(database, archive, batch, pruned)
            await asyncio.sleep(_PAUSE_REAL_S)
        told(pruned)
    if workloads_cutoff_s is not None and not dry_run:
        await database.run(retention_store.delete_empty_arrays)
    return pruned


async def _count_run_times(database: Database) -> None:
    """What is not counted yet stays; without a policy that goes by run times nobody else counts them."""
    counted = completed_store.COUNTED_AT_ONCE
    while counted == completed_store.COUNTED_AT_ONCE:
        counted = await database.run(completed_store.count_completed)


async def _take_out(database: Database, archive: Archive | None, batch: _Batch, pruned: Pruned) -> None:
    counts = dict.fromkeys(batch.tables, 0)
    for keys in _parts(batch.keys):
        for table in batch.tables:
            rows = await database.run(partial(_read, table=table, keys=keys))
            if archive is not None:
                # In a thread: writing and waiting for the disk stops no loop that holds a lease.
                await asyncio.to_thread(archive.write, table, rows)
            counts[table] += len(rows)
    await database.run(partial(_delete, batch=batch))
    for table, count in counts.items():
        pruned.add(table, count)


def _parts(keys: Sequence[object]) -> Iterator[Sequence[object]]:
    """Of an array, so many at once as there are of other batches."""
    for start in range(0, len(keys), EVENTS_AT_ONCE):
        yield keys[start : start + EVENTS_AT_ONCE]


async def _batches(
    database: Database, cutoff_s: float, workloads_cutoff_s: float | None, *, dry_run: bool
) -> AsyncIterator[_Batch]:
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
    if workloads_cutoff_s is None:
        return
    # Last, when nothing else is left of them.
    which = Forgetting(workloads_cutoff_s, cutoff_s if dry_run else None)
    workload = ""
    while workloads := await database.run(partial(_forgotten, which=which, after=workload)):
        yield _Batch(retention_store.OF_FORGOTTEN, workloads, retention_store.NOT_ARCHIVED)
        workload = workloads[-1]
    array = ""
    while found := await database.run(partial(_forgotten_array, which=which, after=array)):
        array, elements = found
        yield _Batch(retention_store.OF_FORGOTTEN, elements, retention_store.NOT_ARCHIVED)


async def _workloads(connection: AnyConnection, cutoff_s: float, after: str) -> list[str]:
    return await retention_store.ended_workloads(connection, cutoff_s, after, WORKLOADS_AT_ONCE)


async def _forgotten(connection: AnyConnection, which: Forgetting, after: str) -> list[str]:
    return await retention_store.forgotten_workloads(connection, which, after, WORKLOADS_AT_ONCE)


async def _forgotten_array(connection: AnyConnection, which: Forgetting, after: str) -> tuple[str, list[str]] | None:
    return await retention_store.forgotten_array(connection, which, after)


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
    await retention_store.delete_rows(connection, (*batch.tables, *batch.not_archived), batch.keys)
