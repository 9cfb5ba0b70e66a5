"""Copies that hold some partitions of a table alone: what regions have, and what all copies take of their storage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from domain.identifiers import RegionId, TableId
from domain.table_partitions import TablePartition, TablePartitions
from services.database.connection import AnyConnection

ALL_PARTITIONS = 2**31 - 1
"""So many of the newest does a region hold that lacks none, whatever their number."""

_HELD_ALONE = """
        SELECT c.region, p.size_bytes
          FROM data_partition_copies c JOIN data_partitions p USING (data_table, partition)
          JOIN data_tables t USING (data_table)
         WHERE c.region <> t.home
           AND NOT EXISTS (SELECT FROM data_table_replicas r
                            WHERE r.data_table = c.data_table AND r.region = c.region)"""

STORED = f"""
    SELECT region, sum(size_bytes)::bigint AS stored_bytes FROM (
        SELECT home AS region, size_bytes FROM data_tables
        UNION ALL
        SELECT r.region,
               t.size_bytes - CASE WHEN r.complete_until_s < t.last_partition_s
                                   THEN (SELECT coalesce(sum(p.size_bytes), 0) FROM data_partitions p
                                          WHERE p.data_table = t.data_table AND p.created_s > r.complete_until_s)
                                   ELSE 0 END
          FROM data_table_replicas r JOIN data_tables t USING (data_table)
         WHERE r.region <> t.home
        UNION ALL{_HELD_ALONE}) AS copies
     GROUP BY region"""
"""Bytes by region as the catalog has them: homes, complete copies, copies that are behind as far as they are known to
reach, and partitions that are held alone; each byte once. A copy of which nobody knows what it has counts as complete."""

_NEWEST_HELD = """
    WITH held AS (SELECT DISTINCT c.data_table, c.region
                    FROM data_partition_copies c JOIN data_tables t USING (data_table)
                   WHERE {} AND c.region <> t.home
                     AND NOT EXISTS (SELECT FROM data_table_replicas r
                                      WHERE r.data_table = c.data_table AND r.region = c.region)),
         ranked AS (SELECT h.data_table, h.region, c.partition IS NOT NULL AS is_held,
                           row_number() OVER (PARTITION BY h.data_table, h.region
                                              ORDER BY p.created_s DESC, p.partition DESC) AS place
                      FROM held h JOIN data_partitions p USING (data_table)
                      LEFT JOIN data_partition_copies c
                             ON c.data_table = h.data_table AND c.region = h.region AND c.partition = p.partition)
    SELECT data_table, region, coalesce(min(place) FILTER (WHERE NOT is_held) - 1, %(all)s)::bigint
      FROM ranked GROUP BY data_table, region ORDER BY data_table, region"""

_NEWEST_HELD_OF = _NEWEST_HELD.format("t.data_table = ANY (%(tables)s)")
_NEWEST_HELD_SINCE = _NEWEST_HELD.format("t.revision > %(revision)s")

_PARTITIONS = """
    SELECT p.data_table, array_agg(p.partition ORDER BY p.created_s DESC, p.partition DESC),
           array_agg(p.size_bytes ORDER BY p.created_s DESC, p.partition DESC)
      FROM data_partitions p WHERE p.data_table = ANY (%s) GROUP BY p.data_table"""

_HELD = """
    SELECT data_table, region, array_agg(partition ORDER BY partition) FROM (
        SELECT c.data_table, c.region, c.partition FROM data_partition_copies c WHERE c.data_table = ANY (%(tables)s)
        UNION
        SELECT r.data_table, r.region, p.partition
          FROM data_table_replicas r JOIN data_partitions p USING (data_table)
         WHERE r.data_table = ANY (%(tables)s) AND p.created_s <= r.complete_until_s) AS held
     GROUP BY data_table, region ORDER BY data_table, region"""


NewestHeld: TypeAlias = tuple[tuple[RegionId, int], ...]


async def load_newest_held(connection: AnyConnection, tables: Sequence[TableId]) -> dict[TableId, NewestHeld]:
    """Regions that hold no copy of a table but some of its newest partitions, and how many: of these tables."""
    if not tables:
        return {}
    cursor = await connection.execute(_NEWEST_HELD_OF, {"tables": list(tables), "all": ALL_PARTITIONS})
    return _newest_held(await cursor.fetchall())


async def load_newest_held_since(connection: AnyConnection, revision: int) -> dict[TableId, NewestHeld]:
    """The same of all tables that have changed since that revision of the catalog."""
    cursor = await connection.execute(_NEWEST_HELD_SINCE, {"revision": revision, "all": ALL_PARTITIONS})
    return _newest_held(await cursor.fetchall())


def _newest_held(rows: Iterable[Sequence[Any]]) -> dict[TableId, NewestHeld]:
    found: dict[TableId, NewestHeld] = {}
    for table, region, count in rows:
        found[TableId(table)] = (*found.get(TableId(table), ()), (RegionId(region), int(count)))
    return found


async def load_bytes_held_alone(connection: AnyConnection) -> dict[str, int]:
    """What partitions take in regions that hold them without a copy of the whole table, by region."""
    cursor = await connection.execute(
        f"SELECT region, sum(size_bytes)::bigint FROM ({_HELD_ALONE}) AS alone GROUP BY region ORDER BY region"
    )
    return {str(region): int(size) for region, size in await cursor.fetchall()}


async def load_partition_files(connection: AnyConnection, table: TableId) -> list[tuple[str, int, str]]:
    """Name, size and checksum of each partition of a table, by name."""
    cursor = await connection.execute(
        "SELECT partition, size_bytes, checksum FROM data_partitions WHERE data_table = %s ORDER BY partition", (table,)
    )
    return [(str(name), int(size), str(checksum)) for name, size, checksum in await cursor.fetchall()]


async def load_table_partitions(connection: AnyConnection, tables: Sequence[TableId]) -> dict[TableId, TablePartitions]:
    """Of these tables, as far as they have any."""
    held: dict[TableId, dict[RegionId, frozenset[str]]] = {}
    for table, region, names in await (await connection.execute(_HELD, {"tables": list(tables)})).fetchall():
        held.setdefault(TableId(table), {})[RegionId(region)] = frozenset(names)
    rows = await (await connection.execute(_PARTITIONS, (list(tables),))).fetchall()
    return {
        TableId(table): TablePartitions(
            tuple(TablePartition(name, int(size)) for name, size in zip(names, sizes, strict=True)),
            held.get(TableId(table), {}),
        )
        for table, names, sizes in rows
    }


async def record_partition_copies(
    connection: AnyConnection, table: TableId, region: RegionId, partitions: Sequence[str], now: float
) -> bool:
    """The region holds these from now on, as far as the table still has them; True: it lacks none of the table then."""
    await connection.execute(
        """INSERT INTO data_partition_copies (data_table, region, partition, copied_s)
           SELECT data_table, %s, partition, %s FROM data_partitions WHERE data_table = %s AND partition = ANY (%s)
           ON CONFLICT DO NOTHING""",
        (region, now, table, list(partitions)),
    )
    cursor = await connection.execute(
        """SELECT NOT EXISTS (SELECT FROM data_partitions p WHERE p.data_table = %s AND NOT EXISTS (
                     SELECT FROM data_partition_copies c
                      WHERE c.data_table = p.data_table AND c.region = %s AND c.partition = p.partition))""",
        (table, region),
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def forget_partition_copies(connection: AnyConnection, table: TableId, regions: Sequence[RegionId]) -> None:
    """Of regions that hold all of the table from now on, or nothing."""
    await connection.execute(
        "DELETE FROM data_partition_copies WHERE data_table = %s AND region = ANY (%s)", (table, list(regions))
    )


async def forget_partition_copies_elsewhere(connection: AnyConnection) -> list[str]:
    """Those in regions that the fleet does not have, for no workload can read them there; the tables that had any."""
    cursor = await connection.execute(
        """WITH gone AS (DELETE FROM data_partition_copies c
                          WHERE NOT EXISTS (SELECT FROM regions r WHERE r.region = c.region) RETURNING data_table)
           SELECT DISTINCT data_table FROM gone"""
    )
    return [str(row[0]) for row in await cursor.fetchall()]
