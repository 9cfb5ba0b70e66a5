"""The catalog of tables: replaced as a whole, read as a whole or as what has changed since a revision.

Each table says in which revision of the catalog it last changed, and dropped ones are remembered by name: so a
process that has the catalog in memory need not read a million tables again because of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from sqlalchemy import delete, func, select

from data_placement.catalog import Catalog, CatalogChange
from domain.identifiers import RegionId, TableId
from domain.table import Table
from services.database.channels import CATALOG_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.core_statements import any_of, execute, insert_rows
from services.database.large_results import all_rows
from services.database.revision_store import Subject, load_revision, lock_revision, raise_revision
from services.database.tables.catalog import DATA_TABLE_REPLICAS, DATA_TABLES, DROPPED_DATA_TABLES


async def apply_tables(connection: AnyConnection, tables: Iterable[Table]) -> int:
    """Replaces all tables and returns the catalog's revision; applying the same ones again changes nothing.

    Names are taken to be unique. A caller that also applies a fleet in the same transaction does that first:
    all lock the two revisions in this order.
    """
    revision = await lock_revision(connection, Subject.CATALOG)
    stored = await _load_tables(connection, since=-1)
    wanted = {table.table: replace(table, replicas=tuple(sorted(set(table.replicas)))) for table in tables}
    outdated = sorted(name for name, table in stored.items() if wanted.get(name) != table)
    changed = [table for name, table in sorted(wanted.items()) if stored.get(name) != table]
    if not outdated and not changed:
        return revision
    revision = await raise_revision(connection, Subject.CATALOG)
    await execute(connection, delete(DATA_TABLES).where(any_of(DATA_TABLES.c.data_table, outdated)))
    await _insert(connection, changed, revision)
    await _remember_dropped(connection, [name for name in outdated if name not in wanted], revision)
    wake_after_commit(connection, CATALOG_CHANNEL)
    return revision


async def load_catalog(connection: AnyConnection) -> Catalog:
    """All tables, at the present revision, if the transaction is one snapshot."""
    revision = await catalog_revision(connection)
    return Catalog((await _load_tables(connection, since=-1)).values(), revision)


async def load_changes(connection: AnyConnection, since: int) -> CatalogChange:
    """What has changed since a revision, up to the present one, if the transaction is one snapshot."""
    revision = await catalog_revision(connection)
    tables = await _load_tables(connection, since)
    dropped = await all_rows(
        connection,
        select(DROPPED_DATA_TABLES.c.data_table)
        .where(DROPPED_DATA_TABLES.c.revision > since)
        .order_by(DROPPED_DATA_TABLES.c.data_table),
    )
    return CatalogChange(since, revision, tuple(tables.values()), tuple(TableId(row[0]) for row in dropped))


async def catalog_revision(connection: AnyConnection) -> int:
    """Grows with each change of the tables; 0: none were applied yet."""
    return await load_revision(connection, Subject.CATALOG)


async def _load_tables(connection: AnyConnection, since: int) -> dict[TableId, Table]:
    """Those that changed after a revision, by name, sorted."""
    replicas = (
        select(DATA_TABLE_REPLICAS.c.region)
        .where(DATA_TABLE_REPLICAS.c.data_table == DATA_TABLES.c.data_table)
        .order_by(DATA_TABLE_REPLICAS.c.region)
    )
    rows = await all_rows(
        connection,
        select(
            DATA_TABLES.c.data_table,
            DATA_TABLES.c.size_bytes,
            DATA_TABLES.c.home,
            func.array(replicas.scalar_subquery()),
        )
        .where(DATA_TABLES.c.revision > since)
        .order_by(DATA_TABLES.c.data_table),
    )
    return {
        TableId(row[0]): Table(TableId(row[0]), row[1], RegionId(row[2]), tuple(RegionId(r) for r in row[3]))
        for row in rows
    }


async def _insert(connection: AnyConnection, tables: Sequence[Table], revision: int) -> None:
    await execute(
        connection,
        insert_rows(
            DATA_TABLES,
            ("data_table", "size_bytes", "home", "revision"),
            [(table.table, table.size_bytes, table.home, revision) for table in tables],
        ),
    )
    replicas = [(table.table, region) for table in tables for region in table.replicas]
    await execute(connection, insert_rows(DATA_TABLE_REPLICAS, ("data_table", "region"), replicas))
    present = any_of(DROPPED_DATA_TABLES.c.data_table, [table.table for table in tables])
    await execute(connection, delete(DROPPED_DATA_TABLES).where(present))


async def _remember_dropped(connection: AnyConnection, names: Sequence[TableId], revision: int) -> None:
    rows = [(name, revision) for name in names]
    await execute(connection, insert_rows(DROPPED_DATA_TABLES, ("data_table", "revision"), rows))
