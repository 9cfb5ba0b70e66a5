"""Copies the columns of a warehouse into the staging tables: as CSV that Arrow makes, for no object is made per row."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.csv

from domain.warehouse import Indices, Warehouse, WarehouseCatalog
from formats.warehouse_catalog import names_column
from services.database.connection import AnyConnection

_ROWS_AT_ONCE = 200_000
_WITHOUT_HEADER = pyarrow.csv.WriteOptions(include_header=False)


async def stage(connection: AnyConnection, catalog: WarehouseCatalog) -> None:
    """Fills the staging tables, but not that of reads; what another import left there is gone.

    Others that import wait for this transaction.
    """
    await connection.execute(
        """TRUNCATE data_staged_tables, data_staged_copies, data_staged_partitions, data_staged_readers,
                    data_staged_reads"""
    )
    await _stage_tables(connection, catalog)
    await _stage_readers(connection, catalog.warehouse)
    # Fresh tables have no statistics, and joins of millions of rows would be planned for a handful.
    await connection.execute(
        "ANALYZE data_staged_tables, data_staged_copies, data_staged_partitions, data_staged_readers"
    )


async def _stage_tables(connection: AnyConnection, catalog: WarehouseCatalog) -> None:
    tables, partitions = catalog.warehouse.tables, catalog.partitions
    names, regions = names_column(tables.names), pa.array(catalog.warehouse.regions.names, pa.string())
    newest = np.full(tables.count, -np.inf)
    np.maximum.at(newest, partitions.table, partitions.created_s)
    await _copy(
        connection,
        "COPY data_staged_tables (position, data_table, size_bytes, home, last_partition_s) FROM STDIN (FORMAT csv)",
        (
            pa.array(np.arange(tables.count)),
            names,
            pa.array(tables.size_bytes),
            _at(regions, tables.home),
            pa.array(newest, mask=np.isinf(newest)),
        ),
    )
    table, region = _copies(catalog.warehouse)
    await _copy(
        connection,
        "COPY data_staged_copies (data_table, region, complete_until_s) FROM STDIN (FORMAT csv)",
        (_at(names, table), _at(regions, region), _complete_until(catalog, table, region)),
    )
    await _copy(
        connection,
        """COPY data_staged_partitions (data_table, partition, size_bytes, checksum, created_s)
           FROM STDIN (FORMAT csv)""",
        (
            _at(names, partitions.table),
            names_column(partitions.names),
            pa.array(partitions.size_bytes),
            names_column(partitions.checksums),
            pa.array(partitions.created_s),
        ),
    )


async def _stage_readers(connection: AnyConnection, warehouse: Warehouse) -> None:
    jobs, regions = warehouse.jobs, warehouse.regions
    priorities = np.array(jobs.priorities, np.int64)
    await _copy(
        connection,
        """COPY data_staged_readers (position, name, training, application, gpu_model, priority, weight, gpu_hours,
                                     cpu_hours)
           FROM STDIN (FORMAT csv)""",
        (
            pa.array(np.arange(jobs.count)),
            names_column(jobs.names),
            pa.array(jobs.training),
            _at_or_empty(regions.applications, jobs.application),
            _at_or_empty(regions.gpu_models, jobs.gpu_model),
            pa.array(priorities[jobs.priority] if jobs.count else priorities),
            pa.array(jobs.weight),
            pa.array(jobs.gpu_hours),
            pa.array(jobs.cpu_hours),
        ),
    )


async def _copy(connection: AnyConnection, statement: str, columns: Sequence[pa.Array]) -> None:
    async with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for rows in _csv(columns):
            await copy.write(rows)


def _csv(columns: Sequence[pa.Array]) -> Iterator[bytes]:
    """The rows, some at a time; a null is nothing, empty text is a pair of quotes."""
    table = pa.table(list(columns), names=[str(place) for place in range(len(columns))])
    for begin in range(0, table.num_rows, _ROWS_AT_ONCE):
        written = io.BytesIO()
        pyarrow.csv.write_csv(table.slice(begin, _ROWS_AT_ONCE), written, _WITHOUT_HEADER)
        yield written.getvalue()


def _at(names: pa.Array, places: Indices) -> pa.Array:
    return names.take(pa.array(places))


def _at_or_empty(names: Sequence[str], places: Indices) -> pa.Array:
    """The names at these places; empty where a place is -1."""
    return _at(pa.array(["", *names], pa.string()), places + np.int32(1))


def _copies(warehouse: Warehouse) -> tuple[Indices, Indices]:
    """Of each copy beside a home: the table and the region."""
    masks = warehouse.tables.replicas
    found = [np.flatnonzero(masks >> region & 1) for region in range(warehouse.regions.count)]
    region = np.repeat(np.arange(len(found)), [len(tables) for tables in found])
    return np.concatenate(found).astype(np.int32), region.astype(np.int32)


def _complete_until(catalog: WarehouseCatalog, table: Indices, region: Indices) -> pa.Array:
    """Up to when each of these copies has everything; null where nobody knows."""
    ages, regions = catalog.copy_ages, catalog.warehouse.regions.count
    known = ages.table.astype(np.int64) * regions + ages.region
    order = np.argsort(known, kind="stable")
    wanted = table.astype(np.int64) * regions + region
    if not len(known):
        return pa.nulls(len(wanted), pa.float64())
    place = order[np.minimum(np.searchsorted(known[order], wanted), len(known) - 1)]
    return pa.array(ages.complete_until_s[place], mask=known[place] != wanted)
