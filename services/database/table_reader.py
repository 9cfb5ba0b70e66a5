"""What people ask of the catalog: pages of tables, one table, and who reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.rows import TupleRow

from domain.identifiers import TableId
from domain.table import namespace_of
from services.database.connection import AnyConnection
from services.database.partition_copy_store import load_newest_held

SHOWN_READERS = 20


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """A copy beside the home."""

    region: str
    complete_until_s: float | None
    partitions: int | None
    """So many, where it is not complete; None: it is."""
    newest_partitions: int | None = None
    """So many of these are the newest without a gap."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One table as it stands in the catalog."""

    table: str
    namespace: str
    tenant: str | None
    size_bytes: int
    home: str
    copies: tuple[CopyRecord, ...]
    partitions: int
    last_partition_s: float | None


@dataclass(frozen=True, slots=True)
class ReaderRecord:
    """Something that reads a table, and what it needs in a day."""

    name: str
    training: bool
    gpu_model: str
    priority: int
    gpu_hours: float
    cpu_hours: float
    other_tables: int
    hint: str | None


# A namespace is a range of names: '/' is what follows '.' in the order of the key.
_PAGE = """
    WITH page AS (
        SELECT t.* FROM data_tables t
         WHERE t.data_table > %(after)s
           AND (%(namespace)s = '' OR t.data_table >= %(namespace)s || '.' AND t.data_table < %(namespace)s || '/')
           AND (%(region)s = '' OR t.home = %(region)s
                OR EXISTS (SELECT FROM data_table_replicas c WHERE c.data_table = t.data_table AND c.region = %(region)s)
                OR EXISTS (SELECT FROM data_partition_copies c
                            WHERE c.data_table = t.data_table AND c.region = %(region)s))
           AND (%(owners)s::text[] IS NULL
                OR NOT EXISTS (SELECT FROM data_namespaces o
                                WHERE o.namespace = split_part(t.data_table, '.', 1) AND position('.' IN t.data_table) > 0
                                  AND coalesce(o.tenant, '') <> '' AND o.tenant <> ALL(%(owners)s)))
         ORDER BY t.data_table LIMIT %(limit)s)
    SELECT p.data_table, p.size_bytes, p.home, p.last_partition_s,
           (SELECT count(*) FROM data_partitions a WHERE a.data_table = p.data_table),
           ARRAY(SELECT c.region FROM data_table_replicas c WHERE c.data_table = p.data_table ORDER BY c.region),
           ARRAY(SELECT c.complete_until_s FROM data_table_replicas c WHERE c.data_table = p.data_table ORDER BY c.region),
           ARRAY(SELECT c.region FROM data_partition_copies c
                  WHERE c.data_table = p.data_table GROUP BY c.region ORDER BY c.region),
           ARRAY(SELECT count(*) FROM data_partition_copies c
                  WHERE c.data_table = p.data_table GROUP BY c.region ORDER BY c.region),
           n.tenant
      FROM page p LEFT JOIN data_namespaces n ON n.namespace = split_part(p.data_table, '.', 1)
                                             AND position('.' IN p.data_table) > 0
     ORDER BY p.data_table"""

_ONE = _PAGE.replace("t.data_table > %(after)s", "t.data_table = %(after)s")

_READERS = """
    WITH span AS (SELECT greatest(1, least(%(window_days)s::int, %(today)s - min(day) + 1)) AS days FROM data_reader_days),
         reading AS (
             SELECT r.reader, r.name, r.training, r.gpu_model, r.priority, r.fingerprint,
                    coalesce(o.gpu_hours / s.days, r.gpu_hours) AS gpu_hours,
                    coalesce(o.cpu_hours / s.days, r.cpu_hours) AS cpu_hours
               FROM data_reads d JOIN data_readers r USING (reader) CROSS JOIN span s
               LEFT JOIN LATERAL (SELECT sum(y.gpu_hours) AS gpu_hours, sum(y.cpu_hours) AS cpu_hours
                                    FROM data_reader_days y
                                   WHERE y.reader = r.reader AND y.day > %(today)s - %(window_days)s::int) o ON true
              WHERE d.table_number = (SELECT number FROM data_tables WHERE data_table = %(table)s))
    SELECT g.name, g.training, g.gpu_model, g.priority, g.gpu_hours, g.cpu_hours,
           (SELECT count(*) FROM data_reads e WHERE e.reader = g.reader) - 1, h.region, count(*) OVER ()
      FROM reading g LEFT JOIN data_hints h USING (fingerprint)
     ORDER BY g.gpu_hours DESC, g.cpu_hours DESC, g.name LIMIT %(limit)s"""


async def load_page(
    connection: AnyConnection,
    region: str,
    namespace: str,
    after: str,
    limit: int,
    owners: Sequence[str] | None = None,
) -> list[TableRecord]:
    """The tables behind a name, by name; empty filters exclude nothing. `owners`: only theirs, and nobody's."""
    parameters = {
        "after": after,
        "namespace": namespace,
        "region": region,
        "limit": limit,
        "owners": None if owners is None else list(owners),
    }
    cursor = await connection.execute(_PAGE, parameters)
    return await _records(connection, await cursor.fetchall())


async def load_table(connection: AnyConnection, table: str, owners: Sequence[str] | None = None) -> TableRecord | None:
    """That table; None where there is none, or it is none of the owners'."""
    parameters = {"after": table, "namespace": "", "region": "", "limit": 1}
    cursor = await connection.execute(_ONE, {**parameters, "owners": None if owners is None else list(owners)})
    found = await _records(connection, await cursor.fetchall())
    return found[0] if found else None


async def load_readers(
    connection: AnyConnection, table: str, now_s: float, window_days: int
) -> tuple[list[ReaderRecord], int]:
    """Those that use most, SHOWN_READERS at most, and how many there are."""
    parameters = {"table": table, "today": int(now_s // 86_400), "window_days": window_days, "limit": SHOWN_READERS}
    rows = await (await connection.execute(_READERS, parameters)).fetchall()
    return [ReaderRecord(*row[:8]) for row in rows], int(rows[0][8]) if rows else 0


async def region_names(connection: AnyConnection) -> list[str]:
    """Of the fleet, in its order."""
    cursor = await connection.execute("SELECT region FROM regions ORDER BY position")
    return [str(row[0]) for row in await cursor.fetchall()]


async def names_alike(connection: AnyConnection, table: str) -> list[str]:
    """Names that begin as that one does, for those who mistyped it."""
    cursor = await connection.execute(
        "SELECT data_table FROM data_tables WHERE data_table LIKE %s ORDER BY data_table LIMIT 500",
        (table[:4].replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%",),
    )
    return [str(row[0]) for row in await cursor.fetchall()]


async def _records(connection: AnyConnection, rows: Sequence[TupleRow]) -> list[TableRecord]:
    alone = [TableId(row[0]) for row in rows if row[7]]
    newest_held = await load_newest_held(connection, alone)
    return [
        TableRecord(
            name,
            namespace_of(TableId(name)),
            tenant,
            size,
            home,
            (
                *(CopyRecord(region, until, None) for region, until in zip(complete, untils, strict=True)),
                *(
                    CopyRecord(region, None, count, min(count, dict(newest_held.get(TableId(name), ())).get(region, 0)))
                    for region, count in zip(partial, counts, strict=True)
                ),
            ),
            partitions,
            last,
        )
        for name, size, home, last, partitions, complete, untils, partial, counts, tenant in rows
    ]
