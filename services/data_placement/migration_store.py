"""Migrations in the database: asked for by anybody, carried out by the holder of one lease, resumed by the next.

Every change of state is a compare-and-swap: it names the states in which it can happen, and the token of the lease under
which the migration is carried out. What a predecessor writes late changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from psycopg.types.json import Jsonb

from data_placement.links import DEFAULT_BYTES_PER_S, Links
from data_placement.migrations.bandwidth import SECONDS_PER_DAY, day_of
from data_placement.migrations.decision import MOST_FAILURES
from data_placement.migrations.life_cycle import (
    MigrationHappening,
    next_migration_state,
    states_before_migration,
)
from data_placement.migrations.migration import (
    Migration,
    newest_to_copy,
    switch_problem,
    switched_table,
    wider,
)
from data_placement.migrations.storage import Storage
from domain.events import Event, EventKind
from domain.identifiers import RegionId, TableId
from domain.table import Table
from formats.table_events import table_moved_details
from services.data_placement.migration_rows import MIGRATION_COLUMNS, migration_of_row, parts_document
from services.data_placement.partitions_look import missing_bytes, why_not_newest
from services.data_placement.switched_copies import enqueue_the_rest, why_changed, why_no_region, write_table
from services.database import event_store
from services.database.channels import CATALOG_CHANNEL, DATA_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.partition_copy_store import (
    STORED,
    load_newest_held,
    record_partition_copies,
)
from services.database.revision_store import Subject, lock_revision, raise_revision

MOST_PLANNED = 1_000
"""So many planned migrations are looked at, in order of rank; the others come when these have begun."""

_RANK = "deadline_s IS NULL, CASE WHEN deadline_s IS NULL THEN 0 ELSE priority END, deadline_s, number"


class MigrationChanged(Exception):
    """The migration is not what it was, or somebody else carries it out: the transaction must be rolled back."""


@dataclass(frozen=True, slots=True)
class WantedMigration:
    """What somebody asks for."""

    table: TableId
    target: RegionId
    leaves: RegionId | None = None
    """The home that it moves away from; None: a copy."""
    priority: int = 0
    deadline_s: float | None = None
    on_demand: bool = False
    plan: int | None = None
    newest_partitions: int | None = None
    """Of a copy: so many of the newest partitions alone; None: the whole table."""
    keeps_old_copy: bool = False
    """The home that it moves away from holds a copy from then on."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What came of it."""

    numbers: tuple[int, ...]
    bytes: int
    passed_over: tuple[tuple[TableId, str], ...]
    """Those that are not enqueued, with a sentence for each."""


async def enqueue(connection: AnyConnection, wanted: Sequence[WantedMigration], now: float) -> Enqueued:
    """Enqueues migrations, all in one transaction; those that make no sense any more are passed over with the reason.

    What is on the way to the same place already is not enqueued again; where that is more urgent now, it becomes so, it
    brings as many partitions as are wanted now (those that are wanted since it has begun follow after its switch), and
    where a plan wants it too, it is made also when no workload waits for it any more.
    """
    wanted = _widest(wanted)
    tables = await _tables_named(connection, [each.table for each in wanted], lock=False)
    active = await _active_of(connection, [each.table for each in wanted])
    accepted: list[tuple[WantedMigration, Table]] = []
    passed_over: list[tuple[TableId, str]] = []
    for each in wanted:
        reason = _why_not(each, tables.get(each.table), active.get(each.table, []))
        if reason:
            passed_over.append((each.table, reason))
            continue
        newest = newest_to_copy(tables[each.table], each.target, each.newest_partitions)
        accepted.append((replace(each, newest_partitions=newest), tables[each.table]))
        active.setdefault(each.table, []).append((0, each.target, each.leaves is not None))
    await _make_urgent(connection, [each for each in wanted if each.deadline_s is not None])
    await _widen(connection, wanted)
    await _want_in_any_case(connection, [each for each in wanted if not each.on_demand])
    numbers = await _insert(connection, accepted, now)
    wake_after_commit(connection, DATA_CHANNEL)
    size = await missing_bytes(connection, [(table, each.target, each.newest_partitions) for each, table in accepted])
    return Enqueued(tuple(numbers), size, tuple(passed_over))


async def load_active(connection: AnyConnection) -> list[Migration]:
    """Those that have not ended, by number: all that have begun, and the first MOST_PLANNED of the others."""
    cursor = await connection.execute(
        f"""SELECT * FROM (SELECT {MIGRATION_COLUMNS} FROM data_migrations WHERE ended_s IS NULL AND state <> 'planned') AS begun
             UNION ALL
            SELECT * FROM (SELECT {MIGRATION_COLUMNS} FROM data_migrations WHERE ended_s IS NULL AND state = 'planned'
                            ORDER BY {_RANK} LIMIT %s) AS planned""",
        (MOST_PLANNED,),
    )
    return sorted((migration_of_row(row) for row in await cursor.fetchall()), key=lambda migration: migration.number)


async def load_unsettled(connection: AnyConnection) -> list[Migration]:
    """Those that have switched, and of which movers' own files are left, by number."""
    cursor = await connection.execute(
        f"SELECT {MIGRATION_COLUMNS} FROM data_migrations WHERE NOT settled ORDER BY number"
    )
    return [migration_of_row(row) for row in await cursor.fetchall()]


async def mark_settled(connection: AnyConnection, number: int) -> None:
    """Nothing but the table is left of its copy."""
    await connection.execute("UPDATE data_migrations SET settled = true WHERE number = %s", (number,))


async def take_over(connection: AnyConnection, token: int) -> None:
    """From now on what is under way is carried out under this lease, and no earlier one."""
    await connection.execute(
        "UPDATE data_migrations SET token = %s WHERE ended_s IS NULL AND state <> 'planned'", (token,)
    )


async def advance(
    connection: AnyConnection,
    migration: Migration,
    happening: MigrationHappening,
    token: int,
    now: float,
    changes: Mapping[str, object] | None = None,
) -> Migration:
    """The migration after that has happened to it; `changes` are fields that get other values.

    Raises MigrationRefused when the table of states has no such row, and MigrationChanged when the database knows better.
    """
    state = next_migration_state(migration.number, migration.state, happening)
    after = replace(migration, state=state, **(changes or {}))  # type: ignore[arg-type]  # fields by name
    cursor = await connection.execute(
        """UPDATE data_migrations
              SET state = %(state)s, size_bytes = %(size_bytes)s, parts = %(parts)s, copy_bytes = %(copy_bytes)s,
                  partitions = %(partitions)s, settled = settled AND NOT %(switches)s,
                  failures = %(failures)s, retry_s = %(retry_s)s, reason = %(reason)s, token = %(token)s,
                  begun_s = CASE WHEN %(begins)s THEN %(now)s ELSE begun_s END,
                  table_revision = CASE WHEN %(begins)s
                                        THEN (SELECT t.revision FROM data_tables t WHERE t.data_table = data_migrations.data_table)
                                        ELSE table_revision END,
                  ended_s = CASE WHEN %(ended)s THEN %(now)s END
            WHERE number = %(number)s AND state = ANY (%(before)s) AND state = %(was)s
              AND (state = 'planned' OR token = %(token)s)""",
        {
            "number": after.number,
            "state": after.state.value,
            "size_bytes": after.size_bytes,
            "parts": parts_document(after.parts),
            "copy_bytes": after.copy_bytes,
            "partitions": Jsonb(list(after.partitions)) if after.partitions else None,
            "switches": happening is MigrationHappening.VERIFIED,
            "failures": after.failures,
            "retry_s": after.retry_s,
            "reason": after.reason,
            "token": token,
            "begins": happening is MigrationHappening.COPY_BEGAN,
            "ended": after.ended,
            "now": now,
            "before": [state.value for state in states_before_migration(happening)],
            "was": migration.state.value,
        },
    )
    if cursor.rowcount != 1:
        raise MigrationChanged(f"migration {migration.number} is not {migration.state} under this lease any more")
    wake_after_commit(connection, DATA_CHANNEL)
    return after


async def switch(
    connection: AnyConnection, migration: Migration, token: int, now: float, old_copy_stays_until_s: float
) -> Migration:
    """The catalog names the copy from now on, and the migration is past its switch, both or neither.

    Where the table is gone, has grown, has other partitions than were copied or another home by now, or the fleet has not
    the region any more, the try has failed instead, and the reason says so.
    """
    await lock_revision(connection, Subject.CATALOG)
    table = (await _tables_named(connection, [migration.table], lock=True)).get(migration.table)
    # A fleet that is applied asks the catalog for homes under the lock of its revision, before this transaction or after it.
    problem = switch_problem(table, migration) or await why_no_region(connection, migration.target)
    problem = problem or await why_not_newest(connection, migration) or await why_changed(connection, migration)
    if table is None or problem:
        return await advance(
            connection, migration, MigrationHappening.TRY_FAILED, token, now, {"reason": problem, "retry_s": now}
        )
    after = await advance(
        connection,
        migration,
        MigrationHappening.VERIFIED,
        token,
        now,
        {"reason": "", "retry_s": old_copy_stays_until_s},
    )
    is_partial = bool(migration.partitions) and not await record_partition_copies(
        connection, migration.table, migration.target, migration.partitions, now
    )
    moved = table if is_partial else switched_table(table, migration)
    revision = await raise_revision(connection, Subject.CATALOG)
    await write_table(connection, moved, migration, revision, is_partial=is_partial)
    if is_partial:
        await enqueue_the_rest(connection, migration, now)
    held_alone = (await load_newest_held(connection, [migration.table])).get(migration.table, ())
    details = table_moved_details(
        moved,
        table.home,
        migration.copy_bytes,
        moves_home=migration.moves_home,
        on_demand=migration.on_demand,
        newest_partitions=dict(held_alone).get(migration.target),
    )
    await event_store.append(connection, [Event(now, EventKind.TABLE_MOVED, region=migration.target, details=details)])
    wake_after_commit(connection, CATALOG_CHANNEL)
    return after


async def begin_deletion(connection: AnyConnection, migration: Migration, token: int, now: float) -> Migration:
    """The copy that it replaces goes from now on, unless the catalog names that again since it was last looked at."""
    await lock_revision(connection, Subject.CATALOG)
    table = (await load_tables(connection, [migration.table])).get(migration.table)
    if table is not None and migration.leaves in table.regions:
        reason = f"the catalog names the copy in {migration.leaves} again"
        return await advance(connection, migration, MigrationHappening.KEPT, token, now, {"reason": reason})
    return await advance(connection, migration, MigrationHappening.DELETION_BEGAN, token, now, {"reason": ""})


async def store_reasons(connection: AnyConnection, reasons: Mapping[int, str]) -> None:
    """Why migrations wait, by number; one that says the same already is not written."""
    numbers = sorted(reasons)
    await connection.execute(
        """UPDATE data_migrations m SET reason = u.reason
             FROM unnest(%s::bigint[], %s::text[]) AS u (number, reason)
            WHERE m.number = u.number AND m.reason <> u.reason AND m.ended_s IS NULL""",
        (numbers, [reasons[number] for number in numbers]),
    )


async def store_copied_bytes(connection: AnyConnection, copied: Mapping[int, int], token: int) -> None:
    """How many bytes of a copy have arrived, by number."""
    numbers = sorted(copied)
    await connection.execute(
        """UPDATE data_migrations m SET copied_bytes = u.copied
             FROM unnest(%s::bigint[], %s::bigint[]) AS u (number, copied)
            WHERE m.number = u.number AND m.token = %s""",
        (numbers, [copied[number] for number in numbers], token),
    )


async def bytes_begun_today(connection: AnyConnection, now: float) -> int:
    """Of the copies that began on the day of `now` (UTC): what the quota of the day has left is less by that."""
    cursor = await connection.execute(
        "SELECT COALESCE(sum(copy_bytes), 0)::bigint FROM data_migrations WHERE begun_s >= %s",
        (day_of(now) * SECONDS_PER_DAY,),
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def load_given_up_on_demand(connection: AnyConnection, since_s: float) -> dict[tuple[TableId, RegionId], str]:
    """Copies on demand whose last of MOST_FAILURES tries began since then and failed: why, by table and region."""
    cursor = await connection.execute(
        """SELECT data_table, target, reason FROM data_migrations
            WHERE begun_s >= %s AND on_demand AND state = 'abandoned' AND failures >= %s ORDER BY number""",
        (since_s, MOST_FAILURES),
    )
    return {(TableId(table), RegionId(target)): str(reason) for table, target, reason in await cursor.fetchall()}


async def load_capacity(connection: AnyConnection) -> dict[RegionId, float]:
    """What regions can store, of those of which it is declared."""
    cursor = await connection.execute("SELECT region, storage_bytes FROM data_regions ORDER BY region")
    return {RegionId(region): float(storage) for region, storage in await cursor.fetchall()}


async def load_storage(connection: AnyConnection) -> Storage:
    """What regions can store, and what the catalog says that they do."""
    capacity = await load_capacity(connection)
    cursor = await connection.execute(f"SELECT region, stored_bytes FROM ({STORED}) AS stored ORDER BY region")
    return Storage(capacity, {RegionId(region): int(stored) for region, stored in await cursor.fetchall()})


async def load_links(connection: AnyConnection) -> Links:
    """What links carry; where any pair is declared, those that are not carry nothing."""
    cursor = await connection.execute("SELECT source, target, bytes_per_day FROM data_links ORDER BY source, target")
    rows = await cursor.fetchall()
    rates = {(RegionId(source), RegionId(target)): rate / SECONDS_PER_DAY for source, target, rate in rows}
    return Links(rates, 0.0 if rates else DEFAULT_BYTES_PER_S)


async def load_tables(connection: AnyConnection, names: Iterable[TableId]) -> dict[TableId, Table]:
    """What the catalog says of these tables; those that are not in it are left out."""
    return await _tables_named(connection, list(names), lock=False)


def _why_not(wanted: WantedMigration, table: Table | None, active: Sequence[tuple[int, RegionId, bool]]) -> str:
    """Why it is passed over; empty: it is not."""
    if table is None:
        return f"table {wanted.table} is not in the catalog"
    if wanted.leaves is None and wanted.target in table.regions_up_to_date:
        return f"{wanted.target} holds a copy of {wanted.table} already"
    newest = wanted.newest_partitions
    if newest is not None and table.holds_newest(wanted.target, newest):
        return f"{wanted.target} holds the {newest} newest partitions of {wanted.table} already"
    if wanted.leaves is not None and table.home != wanted.leaves:
        return f"the home of {wanted.table} is {table.home}, not {wanted.leaves}"
    if wanted.leaves == wanted.target:
        return f"{wanted.target} is the home of {wanted.table} already"
    for number, target, moves_home in active:
        other = f"migration {number}" if number else "another migration of the same request"
        if target == wanted.target:
            return f"{other} brings {wanted.table} to {target} already"
        if moves_home and wanted.leaves is not None:
            return f"{other} moves the home of {wanted.table} to {target} already"
    return ""


async def _active_of(
    connection: AnyConnection, tables: Sequence[TableId]
) -> dict[TableId, list[tuple[int, RegionId, bool]]]:
    """Number, target, and whether the home moves, of what has not ended, by table."""
    cursor = await connection.execute(
        """SELECT data_table, number, target, moves_home FROM data_migrations
            WHERE ended_s IS NULL AND data_table = ANY (%s) ORDER BY number""",
        (list(tables),),
    )
    found: dict[TableId, list[tuple[int, RegionId, bool]]] = {}
    for table, number, target, moves_home in await cursor.fetchall():
        found.setdefault(TableId(table), []).append((number, RegionId(target), moves_home))
    return found


async def _make_urgent(connection: AnyConnection, wanted: Sequence[WantedMigration]) -> None:
    """What is on the way already gets the better of both priorities and deadlines."""
    await connection.execute(
        """UPDATE data_migrations m
              SET priority = CASE WHEN m.deadline_s IS NULL THEN u.priority ELSE LEAST(m.priority, u.priority) END,
                  deadline_s = LEAST(m.deadline_s, u.deadline_s)
             FROM unnest(%s::text[], %s::text[], %s::smallint[], %s::float8[]) AS u (data_table, target, priority, deadline_s)
            WHERE m.ended_s IS NULL AND m.data_table = u.data_table AND m.target = u.target
              AND (m.deadline_s IS NULL OR m.deadline_s > u.deadline_s)""",
        (
            [each.table for each in wanted],
            [each.target for each in wanted],
            [each.priority for each in wanted],
            [each.deadline_s for each in wanted],
        ),
    )


def _widest(wanted: Sequence[WantedMigration]) -> list[WantedMigration]:
    """Each copy once, with as many partitions as any of them wants; in the order in which they come first."""
    copies: dict[tuple[TableId, RegionId], WantedMigration] = {}
    found: list[WantedMigration | tuple[TableId, RegionId]] = []
    for each in wanted:
        key = (each.table, each.target)
        if each.leaves is not None:
            found.append(each)
        elif key in copies:
            first = copies[key]
            copies[key] = replace(first, newest_partitions=wider(first.newest_partitions, each.newest_partitions))
        else:
            copies[key] = each
            found.append(key)
    return [each if isinstance(each, WantedMigration) else copies[each] for each in found]


async def _widen(connection: AnyConnection, wanted: Sequence[WantedMigration]) -> None:
    """What has not switched is to bring as many partitions as are wanted now."""
    await connection.execute(
        """UPDATE data_migrations m
              SET newest_partitions = CASE WHEN u.newest IS NOT NULL THEN GREATEST(m.newest_partitions, u.newest) END
             FROM unnest(%s::text[], %s::text[], %s::int[]) AS u (data_table, target, newest)
            WHERE m.state IN ('planned', 'copying', 'verifying', 'failed') AND m.data_table = u.data_table AND m.target = u.target
              AND m.newest_partitions < COALESCE(u.newest, 2147483647)""",
        (
            [each.table for each in wanted],
            [each.target for each in wanted],
            [each.newest_partitions for each in wanted],
        ),
    )


async def _want_in_any_case(connection: AnyConnection, wanted: Sequence[WantedMigration]) -> None:
    """What was on the way for workloads alone is not given up any more when none of them waits for it."""
    await connection.execute(
        """UPDATE data_migrations m SET on_demand = false
             FROM unnest(%s::text[], %s::text[]) AS u (data_table, target)
            WHERE m.ended_s IS NULL AND m.on_demand AND m.data_table = u.data_table AND m.target = u.target""",
        ([each.table for each in wanted], [each.target for each in wanted]),
    )


async def _insert(
    connection: AnyConnection, accepted: Sequence[tuple[WantedMigration, Table]], now: float
) -> list[int]:
    """One that another transaction has just enqueued too is left to that."""
    cursor = await connection.execute(
        """INSERT INTO data_migrations (data_table, source, target, moves_home, size_bytes, priority, deadline_s, on_demand,
                                        plan, newest_partitions, keeps_old_copy, state, planned_s)
           SELECT u.*, 'planned', %s
             FROM unnest(%s::text[], %s::text[], %s::text[], %s::bool[], %s::bigint[], %s::smallint[], %s::float8[],
                         %s::bool[], %s::bigint[], %s::int[], %s::bool[]) AS u
           ON CONFLICT DO NOTHING RETURNING number""",
        (
            now,
            [each.table for each, _ in accepted],
            [table.home for _, table in accepted],
            [each.target for each, _ in accepted],
            [each.leaves is not None for each, _ in accepted],
            [table.size_bytes for _, table in accepted],
            [each.priority for each, _ in accepted],
            [each.deadline_s for each, _ in accepted],
            [each.on_demand for each, _ in accepted],
            [each.plan for each, _ in accepted],
            [each.newest_partitions for each, _ in accepted],
            [each.keeps_old_copy for each, _ in accepted],
        ),
    )
    return sorted(int(row[0]) for row in await cursor.fetchall())


async def _tables_named(connection: AnyConnection, names: Sequence[TableId], *, lock: bool) -> dict[TableId, Table]:
    cursor = await connection.execute(
        """SELECT t.data_table, t.size_bytes, t.home,
                  ARRAY(SELECT r.region FROM data_table_replicas r WHERE r.data_table = t.data_table ORDER BY r.region),
                  ARRAY(SELECT CASE WHEN t.last_partition_s IS NULL THEN 0
                                    ELSE GREATEST(0, t.last_partition_s - COALESCE(r.complete_until_s, '-Infinity')) END
                          FROM data_table_replicas r WHERE r.data_table = t.data_table ORDER BY r.region)
             FROM data_tables t WHERE t.data_table = ANY (%s) ORDER BY t.data_table"""
        + (" FOR UPDATE" if lock else ""),
        (list(names),),
    )
    rows = await cursor.fetchall()
    newest_held = await load_newest_held(connection, names)
    return {
        TableId(name): Table(
            TableId(name),
            size,
            RegionId(home),
            tuple(map(RegionId, replicas)),
            tuple((RegionId(region), lag_s) for region, lag_s in zip(replicas, lags_s, strict=True) if lag_s > 0),
            newest_held.get(TableId(name), ()),
        )
        for name, size, home, replicas, lags_s in rows
    }
