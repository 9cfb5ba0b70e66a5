"""The catalog of tables: what a fleet file says of them, replaced as a whole; read as a whole or as what has changed.

Each table says in which revision of the catalog it last changed, and dropped ones are remembered by name: so a
process that has the catalog in memory need not read a million tables again because of one. Rows go into the catalog
part by part as they arrive, never all at once: the loop that reads them answers and renews its lease meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace
from math import inf

from sqlalchemy import case, delete, func, select

from data_placement.catalog import Catalog
from domain.identifiers import RegionId, TableId
from domain.table import Table
from services.database.channels import CATALOG_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.core_statements import any_of, execute, insert_rows, upsert_rows
from services.database.large_results import all_rows, rows_in_parts
from services.database.partition_copy_store import (
    forget_partition_copies_elsewhere,
    load_newest_held,
    load_newest_held_since,
)
from services.database.plan_store import load_hints
from services.database.revision_store import Subject, load_revision, lock_revision, raise_revision
from services.database.tables.catalog import DATA_TABLE_REPLICAS, DATA_TABLES, DROPPED_DATA_TABLES
from services.database.tables.data_use import DATA_READS

_REPLICAS_AND_LAGS = (
    select(
        DATA_TABLE_REPLICAS.c.data_table,
        func.array_agg(DATA_TABLE_REPLICAS.c.region).label("regions"),
        func.array_agg(
            case(
                (DATA_TABLES.c.last_partition_s.is_(None), 0.0),
                (DATA_TABLE_REPLICAS.c.complete_until_s.is_(None), inf),
                else_=func.greatest(0.0, DATA_TABLES.c.last_partition_s - DATA_TABLE_REPLICAS.c.complete_until_s),
            )
        ).label("lags_s"),
    )
    .where(DATA_TABLE_REPLICAS.c.data_table == DATA_TABLES.c.data_table)
    .group_by(DATA_TABLE_REPLICAS.c.data_table)
    .lateral("copies")
)
_TABLES = (
    select(
        DATA_TABLES.c.data_table,
        DATA_TABLES.c.size_bytes,
        DATA_TABLES.c.home,
        _REPLICAS_AND_LAGS.c.regions,
        _REPLICAS_AND_LAGS.c.lags_s,
    )
    .select_from(DATA_TABLES)
    .outerjoin(_REPLICAS_AND_LAGS, DATA_TABLES.c.data_table == _REPLICAS_AND_LAGS.c.data_table)
)


class TablesRefused(Exception):
    """A sentence that says what is wrong with tables, and what to do about it."""


async def apply_tables(connection: AnyConnection, tables: Iterable[Table]) -> int:
    """Replaces all tables that come from a fleet file and returns the catalog's revision; the same ones change nothing.

    Raises TablesRefused, and then the transaction must be rolled back, where a copy that is being deleted would be named, or
    the files of two tables would lie in one folder.

    Tables that were imported, or moved since, stay as they are, also when the file names them. Names are taken to be
    unique. A caller that also applies a fleet in the same transaction does that first: all lock the two revisions in
    this order.
    """
    revision = await lock_revision(connection, Subject.CATALOG)
    wanted = {table.table: replace(table, replicas=tuple(sorted(set(table.replicas)))) for table in tables}
    for name in await _of_others(connection, list(wanted)):
        del wanted[name]
    stored = {table.table: table for table in await _tables_of_fleet(connection)}
    gone = sorted(name for name in stored if name not in wanted)
    changed = [table for name, table in sorted(wanted.items()) if stored.get(name) != table]
    if not gone and not changed:
        return revision
    await _require_lasting_copies(connection, changed)
    revision = await raise_revision(connection, Subject.CATALOG)
    await drop_tables(connection, gone, revision)
    await _change(connection, changed, revision)
    if nested := await nested_tables(connection):
        raise TablesRefused(nested[0])
    wake_after_commit(connection, CATALOG_CHANNEL)
    return revision


async def drop_tables(connection: AnyConnection, names: Sequence[TableId], revision: int) -> None:
    """Forgets tables with their partitions, copies and readers, in this revision, which the caller raised the catalog to."""
    numbers = select(DATA_TABLES.c.number).where(any_of(DATA_TABLES.c.data_table, names))
    await execute(connection, delete(DATA_READS).where(DATA_READS.c.table_number.in_(numbers)))
    await execute(connection, delete(DATA_TABLES).where(any_of(DATA_TABLES.c.data_table, names)))
    rows = [(name, revision) for name in names]
    await execute(connection, upsert_rows(DROPPED_DATA_TABLES, ("data_table", "revision"), rows))


async def nested_tables(connection: AnyConnection) -> list[str]:
    """A sentence for each of the first tables whose folder would lie among the files of another one."""
    cursor = await connection.execute(
        """SELECT i.data_table, o.data_table
             FROM data_tables i CROSS JOIN LATERAL generate_series(2, length(i.data_table) - 1) AS place
             JOIN data_tables o ON o.data_table = left(i.data_table, place - 1)
            WHERE position('/' IN i.data_table) > 0 AND substr(i.data_table, place, 1) = '/'
            ORDER BY 1, 2 LIMIT 10"""
    )
    return [
        f"the folder of table {inner} would lie among the files of table {outer}; rename one of them"
        for inner, outer in await cursor.fetchall()
    ]


async def copies_that_go(connection: AnyConnection, places: Sequence[tuple[TableId, RegionId]]) -> list[str]:
    """A sentence for each of the first of these copies that a migration is just deleting."""
    cursor = await connection.execute(
        """WITH going AS (SELECT number, data_table, CASE state WHEN 'deleting' THEN source ELSE target END AS region
                            FROM data_migrations WHERE state IN ('deleting', 'withdrawn'))
           SELECT g.number, g.data_table, g.region
             FROM going g JOIN unnest(%s::text[], %s::text[]) AS u (data_table, region) USING (data_table, region)
            ORDER BY g.number LIMIT 10""",
        ([table for table, _ in places], [region for _, region in places]),
    )
    return [
        f"migration {number} is deleting what is in {region} of table {table}; do it again when that has ended"
        " (`topmast data moves`), or name other regions"
        for number, table, region in await cursor.fetchall()
    ]


async def homeless_tables(connection: AnyConnection) -> tuple[int, str]:
    """How many tables have their home in a region that the fleet does not have, and the first by name."""
    cursor = await connection.execute(
        """SELECT count(*), coalesce(min(t.data_table), '') FROM data_tables t
            WHERE NOT EXISTS (SELECT FROM regions r WHERE r.region = t.home)"""
    )
    row = await cursor.fetchone()
    return (0, "") if row is None else (int(row[0]), str(row[1]))


async def forget_copies_elsewhere(connection: AnyConnection) -> None:
    """Copies in regions that the fleet does not have are none any more. The caller has locked the fleet and the catalog."""
    held_alone = await forget_partition_copies_elsewhere(connection)
    cursor = await connection.execute(
        """SELECT DISTINCT data_table FROM data_table_replicas c
            WHERE NOT EXISTS (SELECT FROM regions r WHERE r.region = c.region)"""
    )
    names = sorted({*held_alone, *(str(row[0]) for row in await cursor.fetchall())})
    if not names:
        return
    revision = await raise_revision(connection, Subject.CATALOG)
    await connection.execute(
        """DELETE FROM data_table_replicas c WHERE NOT EXISTS (SELECT FROM regions r WHERE r.region = c.region)"""
    )
    await connection.execute("UPDATE data_tables SET revision = %s WHERE data_table = ANY (%s)", (revision, names))
    wake_after_commit(connection, CATALOG_CHANNEL)


async def load_catalog(connection: AnyConnection) -> Catalog:
    """All tables, at the present revision, if the transaction is one snapshot."""
    catalog = Catalog(revision=-1)
    await update_catalog(connection, catalog)
    return catalog


async def update_catalog(connection: AnyConnection, catalog: Catalog) -> None:
    """Brings the catalog in place from its revision to the present one, if the transaction is one snapshot.

    Where it fails on the way, some tables are newer than the revision says; the next time goes on from there.
    """
    revision = await catalog_revision(connection)
    if revision == catalog.revision:
        return
    dropped = select(DROPPED_DATA_TABLES.c.data_table).where(DROPPED_DATA_TABLES.c.revision > catalog.revision)
    async with aclosing(rows_in_parts(connection, dropped)) as parts:
        async for rows in parts:
            for (name,) in rows:
                catalog.forget(TableId(name))
    async with aclosing(rows_in_parts(connection, _TABLES.where(DATA_TABLES.c.revision > catalog.revision))) as parts:
        async for rows in parts:
            for name, size_bytes, home, replicas, lags_s in rows:
                catalog.enter(TableId(name), size_bytes, RegionId(home), *_copies(replicas, lags_s))
    for name, newest_held in (await load_newest_held_since(connection, catalog.revision)).items():
        catalog.enter_newest_held(name, newest_held)
    catalog.hints = await load_hints(connection)
    catalog.revision = revision


async def catalog_revision(connection: AnyConnection) -> int:
    """Grows with each change of the tables; 0: none were applied yet."""
    return await load_revision(connection, Subject.CATALOG)


async def hold_tables(connection: AnyConnection, names: Sequence[TableId]) -> dict[TableId, int]:
    """The revision of the catalog in which each of these last changed; none of them changes until the transaction ends.

    Waits for nobody: a table that another transaction is changing or dropping at this moment is left out, as one that
    the catalog has not.
    """
    if not names:
        return {}
    present = select(DATA_TABLES.c.data_table, DATA_TABLES.c.revision).where(any_of(DATA_TABLES.c.data_table, names))
    held = present.order_by(DATA_TABLES.c.data_table).with_for_update(read=True, skip_locked=True)
    cursor = await execute(connection, held)
    return {TableId(name): int(revision) for name, revision in await cursor.fetchall()}


async def hold_where_they_are(connection: AnyConnection, names: Sequence[TableId]) -> Catalog:
    """A catalog of these tables alone, as far as `hold_tables` holds them: what it says stays so until the transaction ends."""
    held = sorted(await hold_tables(connection, names))
    catalog = Catalog()
    if not held:
        return catalog
    # Not in parts: in a pipelined transaction there are no cursors of the server.
    cursor = await execute(connection, _TABLES.where(any_of(DATA_TABLES.c.data_table, held)))
    for name, size_bytes, home, regions, lags_s in await cursor.fetchall():
        catalog.enter(TableId(name), size_bytes, RegionId(home), *_copies(regions, lags_s))
    for table, newest_held in (await load_newest_held(connection, held)).items():
        catalog.enter_newest_held(table, newest_held)
    return catalog


def _copies(
    replicas: list[str] | None, lags_s: list[float] | None
) -> tuple[tuple[RegionId, ...], tuple[tuple[RegionId, float], ...]]:
    """The regions in their order, and by how much some of them are behind."""
    if not replicas or lags_s is None:
        return (), ()
    by_region = sorted(zip((RegionId(region) for region in replicas), lags_s, strict=True))
    return tuple(region for region, _ in by_region), tuple(pair for pair in by_region if pair[1] > 0.0)


async def _tables_of_fleet(connection: AnyConnection) -> list[Table]:
    rows = await all_rows(connection, _TABLES.where(DATA_TABLES.c.from_fleet))
    return [
        Table(TableId(name), size, RegionId(home), *_copies(regions, lags)) for name, size, home, regions, lags in rows
    ]


async def _require_lasting_copies(connection: AnyConnection, tables: Sequence[Table]) -> None:
    """What is just being deleted must not be called a copy."""
    going = await copies_that_go(connection, [(table.table, region) for table in tables for region in table.regions])
    if going:
        raise TablesRefused(going[0])


async def _of_others(connection: AnyConnection, names: Sequence[TableId]) -> list[TableId]:
    """Those of the names under which there is a table that no fleet file may change."""
    found = await all_rows(
        connection,
        select(DATA_TABLES.c.data_table).where(any_of(DATA_TABLES.c.data_table, names), ~DATA_TABLES.c.from_fleet),
    )
    return [TableId(row[0]) for row in found]


async def _change(connection: AnyConnection, tables: Sequence[Table], revision: int) -> None:
    names = [table.table for table in tables]
    await execute(
        connection,
        upsert_rows(
            DATA_TABLES,
            ("data_table", "size_bytes", "home", "revision"),
            [(table.table, table.size_bytes, table.home, revision) for table in tables],
        ),
    )
    replicas = [(table.table, region) for table in tables for region in table.replicas]
    await execute(connection, delete(DATA_TABLE_REPLICAS).where(any_of(DATA_TABLE_REPLICAS.c.data_table, names)))
    await execute(connection, insert_rows(DATA_TABLE_REPLICAS, ("data_table", "region"), replicas))
    await execute(connection, delete(DROPPED_DATA_TABLES).where(any_of(DROPPED_DATA_TABLES.c.data_table, names)))
