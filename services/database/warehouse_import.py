"""Brings a warehouse into the catalog: its files are staged, and merged from there set by set.

All of it is part of the caller's transaction, and one revision of the catalog. At most one import is under way at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.warehouse import WarehouseCatalog
from formats.problems import FieldProblem, FormatError, in_quotes, suggestion
from services.database.catalog_store import nested_tables
from services.database.channels import CATALOG_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.core_statements import execute, upsert_rows
from services.database.partition_copy_store import STORED
from services.database.revision_store import Subject, lock_revision, raise_revision
from services.database.tables.catalog import DATA_LINKS, DATA_NAMESPACES, DATA_REGIONS
from services.database.tables.data_use import DATA_GPU_SUPPLY, DATA_QUOTAS
from services.database.warehouse_readers import replace_readers
from services.database.warehouse_staging import stage

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class ImportChoices:
    """What becomes of what is there already."""

    keep_others: bool = False
    """Tables and readers of earlier imports that these files lack stay; otherwise they are dropped."""
    take_places: bool = False
    """Known tables are where the files say; otherwise where the catalog says, which knows what has moved since."""


@dataclass(frozen=True, slots=True)
class ImportCounts:
    """What an import did."""

    tables: int
    new_tables: int
    changed_tables: int
    dropped_tables: int
    partitions: int
    readers: int
    reads: int
    revision: int
    """Of the catalog, from now on."""
    remarks: tuple[str, ...] = ()


# Joins of a million rows that do not fit into the usual memory are done in parts, on disk.
_WITH_ROOM = "SET LOCAL work_mem = '128MB'"


async def import_catalog(
    connection: AnyConnection, catalog: WarehouseCatalog, choices: ImportChoices, now_s: float
) -> ImportCounts:
    """Merges the catalog of a folder into that of the service. Raises FormatError, and then the transaction must be
    rolled back, where its regions are none of the fleet or a partition would change.
    """
    warehouse = catalog.warehouse
    revision = await lock_revision(connection, Subject.CATALOG)
    await connection.execute(_WITH_ROOM)
    await _require_regions(connection, warehouse.regions.names)
    await stage(connection, catalog)
    await _require_same_partitions(connection)
    await _require_lasting_copies(connection, choices)
    new, changed, elsewhere = await _compare(connection, choices)
    dropped = 0 if choices.keep_others else await _number(connection, _COUNT_GONE)
    if new or changed or dropped:
        revision = await raise_revision(connection, Subject.CATALOG)
        if dropped:
            await connection.execute(_DROP_GONE, (revision,))
        await _merge_tables(connection, choices, revision, now_s)
        await _require_folders_of_their_own(connection)
        wake_after_commit(connection, CATALOG_CHANNEL)
    await replace_readers(connection, warehouse, keep_others=choices.keep_others)
    await _replace_capacity(connection, catalog)
    moved = (
        f"{elsewhere} tables are elsewhere by the catalog, and stay there; --take-places puts them where the files say"
    )
    return ImportCounts(
        warehouse.tables.count,
        new,
        changed,
        dropped,
        catalog.partitions.count,
        warehouse.jobs.count,
        len(warehouse.jobs.tables),
        revision,
        (*([moved] if elsewhere else []), *await full_regions(connection)),
    )


async def full_regions(connection: AnyConnection) -> list[str]:
    """A sentence for each region that stores more than it can."""
    cursor = await connection.execute(_FULL_REGIONS)
    return [
        f"region {region} stores {int(stored)} bytes and has room for {int(storage)}; no plan makes that worse"
        for region, storage, stored in await cursor.fetchall()
    ]


_FULL_REGIONS = f"""
    SELECT region, storage_bytes, stored_bytes FROM data_regions JOIN ({STORED}) AS stored USING (region)
     WHERE stored_bytes > storage_bytes ORDER BY region"""


# ---------------------------------------------------------------- checks


async def _require_regions(connection: AnyConnection, names: Sequence[str]) -> None:
    cursor = await connection.execute("SELECT region FROM regions ORDER BY region")
    known = [str(row[0]) for row in await cursor.fetchall()]
    problems = [
        FieldProblem(
            f"regions row {row + 1}, region",
            f"the fleet has no region {in_quotes(name)}; {suggestion(name, known, 'region')}, or apply a fleet that has it",
        )
        for row, name in enumerate(names)
        if name not in known
    ]
    if problems:
        raise FormatError("warehouse", problems)


_CHANGED_PARTITIONS = f"""
    SELECT s.data_table, s.partition FROM data_staged_partitions s JOIN data_partitions p USING (data_table, partition)
     WHERE s.size_bytes <> p.size_bytes OR (s.checksum <> p.checksum AND s.checksum <> '' AND p.checksum <> '')
     ORDER BY 1, 2 LIMIT {_SHOWN}"""


async def _require_same_partitions(connection: AnyConnection) -> None:
    cursor = await connection.execute(_CHANGED_PARTITIONS)
    problems = [
        FieldProblem(
            "partitions, size_bytes",
            f"partition {in_quotes(partition)} of table {in_quotes(table)} is in the catalog with another size or checksum;"
            " partitions never change: give the new one another name",
        )
        for table, partition in await cursor.fetchall()
    ]
    if problems:
        raise FormatError("warehouse", problems)


_COPIES_THAT_GO = f"""
    WITH going AS (SELECT number, data_table, CASE state WHEN 'deleting' THEN source ELSE target END AS region
                     FROM data_migrations WHERE state IN ('deleting', 'withdrawn'))
    SELECT g.number, g.data_table, g.region FROM going g JOIN data_staged_tables s USING (data_table)
     WHERE (%s OR NOT EXISTS (SELECT FROM data_tables t WHERE t.data_table = g.data_table))
       AND (s.home = g.region OR EXISTS (SELECT FROM data_staged_copies c
                                          WHERE c.data_table = g.data_table AND c.region = g.region))
     ORDER BY g.number LIMIT {_SHOWN}"""


async def _require_lasting_copies(connection: AnyConnection, choices: ImportChoices) -> None:
    """Of tables whose places the files say: what is just being deleted must not be called a copy."""
    cursor = await connection.execute(_COPIES_THAT_GO, (choices.take_places,))
    problems = [
        FieldProblem(
            "tables, home and replicas",
            f"migration {number} is deleting what is in {region} of table {in_quotes(table)}; import again when it has"
            " ended (`topmast data moves`), or name other regions",
        )
        for number, table, region in await cursor.fetchall()
    ]
    if problems:
        raise FormatError("warehouse", problems)


async def _require_folders_of_their_own(connection: AnyConnection) -> None:
    nested = await nested_tables(connection)
    if nested:
        raise FormatError("warehouse", [FieldProblem("tables, table", sentence) for sentence in nested])


# ---------------------------------------------------------------- tables

_DIFFERENT_COPIES = """
    SELECT data_table FROM (
        (SELECT s.data_table, s.region, s.complete_until_s FROM data_staged_copies s
         EXCEPT SELECT data_table, region, complete_until_s FROM data_table_replicas)
        UNION ALL
        (SELECT c.data_table, c.region, c.complete_until_s
           FROM data_table_replicas c JOIN data_staged_tables s USING (data_table)
         EXCEPT SELECT data_table, region, complete_until_s FROM data_staged_copies)) AS different"""

# Of known tables: what comes or goes. Neither size nor time need show it.
_OTHER_PARTITIONS = """
    SELECT n.data_table FROM data_staged_partitions n
     WHERE NOT EXISTS (SELECT FROM data_partitions p WHERE p.data_table = n.data_table AND p.partition = n.partition)
    UNION ALL
    SELECT p.data_table FROM data_partitions p JOIN data_staged_tables s USING (data_table)
     WHERE NOT EXISTS (SELECT FROM data_staged_partitions n
                        WHERE n.data_table = p.data_table AND n.partition = p.partition)"""

_COMPARE = f"""
    SELECT count(*) FILTER (WHERE t.data_table IS NULL),
           count(*) FILTER (WHERE t.data_table IS NOT NULL AND (
                t.from_fleet OR t.size_bytes <> s.size_bytes OR t.last_partition_s IS DISTINCT FROM s.last_partition_s
                OR s.data_table IN ({_OTHER_PARTITIONS})
                OR %(take_places)s AND (t.home <> s.home OR s.data_table IN ({_DIFFERENT_COPIES})))),
           count(*) FILTER (WHERE t.home <> s.home AND NOT %(take_places)s)
      FROM data_staged_tables s LEFT JOIN data_tables t USING (data_table)"""

_GONE = """
      FROM data_tables t
     WHERE NOT t.from_fleet
       AND NOT EXISTS (SELECT FROM data_staged_tables s WHERE s.data_table = t.data_table)"""

_COUNT_GONE = f"SELECT count(*) {_GONE}"

_DROP_GONE = f"""
    WITH gone AS MATERIALIZED (SELECT t.data_table, t.number {_GONE}),
         unread AS (DELETE FROM data_reads r USING gone WHERE r.table_number = gone.number),
         dropped AS (DELETE FROM data_tables t USING gone WHERE t.data_table = gone.data_table)
    INSERT INTO dropped_data_tables (data_table, revision) SELECT data_table, %s FROM gone
    ON CONFLICT (data_table) DO UPDATE SET revision = excluded.revision"""

_DROP_COPIES = """
    DELETE FROM data_table_replicas c USING data_staged_tables s WHERE c.data_table = s.data_table"""

# Where a file says that all of a table is, nothing is held alone.
_FORGET_PARTITION_COPIES = """
    DELETE FROM data_partition_copies h USING data_staged_tables s
     WHERE h.data_table = s.data_table
       AND (h.region = s.home OR EXISTS (SELECT FROM data_staged_copies c
                                          WHERE c.data_table = h.data_table AND c.region = h.region))"""

_MOVE = f"""
    UPDATE data_tables t SET home = s.home, revision = %s FROM data_staged_tables s
     WHERE t.data_table = s.data_table AND (t.home <> s.home OR t.data_table IN ({_DIFFERENT_COPIES}))"""

_CHANGE = f"""
    UPDATE data_tables t
       SET size_bytes = s.size_bytes, last_partition_s = s.last_partition_s, from_fleet = false, revision = %s
      FROM data_staged_tables s
     WHERE t.data_table = s.data_table
       AND (t.from_fleet OR t.size_bytes <> s.size_bytes OR t.last_partition_s IS DISTINCT FROM s.last_partition_s
            OR t.data_table IN ({_OTHER_PARTITIONS}))"""

# A partition that is new although it was created before a copy was complete is not in that copy.
_LACK_LATE_PARTITIONS = """
    WITH late AS MATERIALIZED (
             SELECT n.data_table, min(n.created_s) AS created_s FROM data_staged_partitions n
              WHERE NOT EXISTS (SELECT FROM data_partitions p
                                 WHERE p.data_table = n.data_table AND p.partition = n.partition)
              GROUP BY n.data_table)
    UPDATE data_table_replicas c
       SET complete_until_s = (SELECT max(n.created_s) FROM data_staged_partitions n
                                WHERE n.data_table = c.data_table AND n.created_s < late.created_s)
      FROM late WHERE c.data_table = late.data_table AND c.complete_until_s >= late.created_s"""

# Copies of new tables, and of all whose copies were just dropped.
_ADD = """
    WITH known AS MATERIALIZED (
             SELECT s.data_table FROM data_staged_tables s JOIN data_tables t USING (data_table) WHERE NOT %(take_places)s),
         added AS (
             INSERT INTO data_tables (data_table, size_bytes, home, revision, created_s, last_partition_s, from_fleet)
             SELECT s.data_table, s.size_bytes, s.home, %(revision)s, %(now_s)s, s.last_partition_s, false
               FROM data_staged_tables s
              WHERE NOT EXISTS (SELECT FROM data_tables t WHERE t.data_table = s.data_table)
              ORDER BY s.position),
         back AS (DELETE FROM dropped_data_tables d USING data_staged_tables s WHERE d.data_table = s.data_table)
    INSERT INTO data_table_replicas (data_table, region, complete_until_s)
    SELECT c.data_table, c.region, c.complete_until_s FROM data_staged_copies c
     WHERE NOT EXISTS (SELECT FROM known k WHERE k.data_table = c.data_table)
     ORDER BY c.data_table, c.region"""

_DROP_PARTITIONS = """
    DELETE FROM data_partitions p USING data_staged_tables s
     WHERE p.data_table = s.data_table
       AND NOT EXISTS (SELECT FROM data_staged_partitions n
                        WHERE n.data_table = p.data_table AND n.partition = p.partition)"""

_ADD_PARTITIONS = """
    INSERT INTO data_partitions (data_table, partition, size_bytes, checksum, created_s)
    SELECT data_table, partition, size_bytes, checksum, created_s FROM data_staged_partitions
     ORDER BY data_table, partition
    ON CONFLICT DO NOTHING"""


async def _compare(connection: AnyConnection, choices: ImportChoices) -> tuple[int, int, int]:
    """How many tables are new, are different, and are elsewhere than the files say but stay there."""
    row = await (await connection.execute(_COMPARE, {"take_places": choices.take_places})).fetchone()
    return (0, 0, 0) if row is None else (int(row[0]), int(row[1]), int(row[2]))


async def _merge_tables(connection: AnyConnection, choices: ImportChoices, revision: int, now_s: float) -> None:
    await connection.execute(_CHANGE, (revision,))
    if choices.take_places:
        await connection.execute(_MOVE, (revision,))
        await connection.execute(_DROP_COPIES)
        await connection.execute(_FORGET_PARTITION_COPIES)
    else:
        await connection.execute(_LACK_LATE_PARTITIONS)
    await connection.execute(_ADD, {"take_places": choices.take_places, "revision": revision, "now_s": now_s})
    await connection.execute(_DROP_PARTITIONS)
    await connection.execute(_ADD_PARTITIONS)


async def _number(connection: AnyConnection, query: str) -> int:
    row = await (await connection.execute(query)).fetchone()
    return 0 if row is None else int(row[0])


# ---------------------------------------------------------------- capacity


async def _replace_capacity(connection: AnyConnection, catalog: WarehouseCatalog) -> None:
    """Storage of the named regions; all links, quotas and supplies, and the named namespaces."""
    regions = catalog.warehouse.regions
    names = regions.names
    storage = [(name, int(stored)) for name, stored in zip(names, regions.storage_bytes.tolist(), strict=True)]
    await execute(connection, upsert_rows(DATA_REGIONS, ("region", "storage_bytes"), storage))
    supply = [
        (name, model, float(regions.gpu_hours[place, region]))
        for place, model in enumerate(regions.gpu_models)
        for region, name in enumerate(names)
    ]
    await connection.execute("DELETE FROM data_gpu_supply")
    await execute(connection, upsert_rows(DATA_GPU_SUPPLY, ("region", "gpu_model", "gpu_hours"), supply))
    if regions.cpu_hours is not None:
        quotas = [
            (application, name, float(regions.cpu_hours[place, region]))
            for place, application in enumerate(regions.applications)
            for region, name in enumerate(names)
        ]
        await connection.execute("DELETE FROM data_quotas")
        await execute(connection, upsert_rows(DATA_QUOTAS, ("application", "region", "cpu_hours"), quotas))
    if regions.link_bytes_per_day is not None:
        links = [
            (source, target, float(regions.link_bytes_per_day[i, j]))
            for i, source in enumerate(names)
            for j, target in enumerate(names)
            if i != j
        ]
        await connection.execute("DELETE FROM data_links")
        await execute(connection, upsert_rows(DATA_LINKS, ("source", "target", "bytes_per_day"), links))
    named = catalog.namespaces
    namespaces = [
        (name, tenant or None, copies)
        for name, tenant, copies in zip(named.names, named.tenants, named.disaster_copies, strict=True)
    ]
    await execute(connection, upsert_rows(DATA_NAMESPACES, ("namespace", "tenant", "disaster_copies"), namespaces))
