"""The catalog of a warehouse as a folder: the files of formats.warehouse_folder, and three more, each of which may be missing.

`namespaces` (owners and disaster copies), `partitions` (of which tables consist) and `copies` (how far copies are behind).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from domain.identifiers import IDENTIFIER_PATTERN
from domain.warehouse import CopyAges, Namespaces, Partitions, Regions, Tables, WarehouseCatalog
from formats.problems import FieldProblem, FormatError, in_quotes
from formats.warehouse_columns import SHOWN_ROWS, Column, ColumnFile, LateNames, read_columns
from formats.warehouse_folder import GREATEST_BYTES, read_warehouse, write_warehouse

MOST_DISASTER_COPIES = 10
_NO_PATH = r"/\.{0,2}(/|$)"
"""In a name: where tables are files it would lead out of the folder of its region, or nowhere."""
_FILE_NAME = r"^[^./\x00-\x1f][^/\x00-\x1f]{0,254}$"

_FILES: Mapping[str, Sequence[Column]] = MappingProxyType(
    {
        "namespaces": (
            Column("namespace", text=True),
            Column("tenant", text=True, default=""),
            Column("disaster_copies", text=False, default=1),
        ),
        "partitions": (
            Column("table", text=True),
            Column("partition", text=True),
            Column("size_bytes", text=False),
            Column("checksum", text=True, default=""),
            Column("created_s", text=False, default=0),
        ),
        "copies": (
            Column("table", text=True),
            Column("region", text=True),
            Column("complete_until_s", text=False),
        ),
    }
)


def read_catalog_folder(folder: Path) -> WarehouseCatalog:
    """The catalog of a folder. Raises FormatError with everything that is wrong, field by field."""
    warehouse = read_warehouse(folder)
    problems: list[FieldProblem] = []
    files = {name: read_columns(folder, name, columns, problems, optional=True) for name, columns in _FILES.items()}
    table_names = names_column(warehouse.tables.names)
    tables = warehouse.tables
    partitions = _partitions(files["partitions"], table_names)
    problems += _name_problems(table_names)
    problems += _storage_problems(warehouse.regions)
    problems += _size_problems(tables, float(warehouse.regions.storage_bytes.max()))
    if files["partitions"] is not None:
        problems += _sum_problems(tables, partitions)
    catalog = WarehouseCatalog(
        warehouse,
        _namespaces(files["namespaces"]),
        partitions,
        _copy_ages(files["copies"], tables, table_names, pa.array(warehouse.regions.names)),
    )
    if problems:
        raise FormatError(str(folder), problems)
    return catalog


def write_catalog_folder(folder: Path, catalog: WarehouseCatalog) -> None:
    """Writes all files (Parquet) into the folder, which is made; the additional ones where they hold anything."""
    write_warehouse(folder, catalog.warehouse, beside=_FILES)
    names = names_column(catalog.warehouse.tables.names)
    namespaces, partitions, ages = catalog.namespaces, catalog.partitions, catalog.copy_ages
    regions = pa.array(catalog.warehouse.regions.names, pa.string())
    found = {
        "namespaces": pa.table(
            {
                "namespace": pa.array(namespaces.names, pa.string()),
                "tenant": pa.array(namespaces.tenants, pa.string()),
                "disaster_copies": pa.array(namespaces.disaster_copies, pa.int64()),
            }
        ),
        "partitions": pa.table(
            {
                "table": names.take(pa.array(partitions.table)),
                "partition": names_column(partitions.names),
                "size_bytes": partitions.size_bytes,
                "checksum": names_column(partitions.checksums),
                "created_s": partitions.created_s,
            }
        ),
        "copies": pa.table(
            {
                "table": names.take(pa.array(ages.table)),
                "region": regions.take(pa.array(ages.region)),
                "complete_until_s": ages.complete_until_s,
            }
        ),
    }
    for name, table in found.items():
        path = folder / f"{name}.parquet"
        if table.num_rows:
            pyarrow.parquet.write_table(table, path)
        else:
            path.unlink(missing_ok=True)


def names_column(names: Sequence[str]) -> pa.Array:
    """The names as a column of text."""
    return names.column if isinstance(names, LateNames) else pa.array(names, pa.string())


def _namespaces(file: ColumnFile | None) -> Namespaces:
    if file is None:
        return Namespaces()
    names = file.unique_names("namespace", "namespace")
    for row, name in enumerate(names.to_pylist()):
        if "." in name:
            file.problem(row, "namespace", f"is {in_quotes(name)}; a namespace is what stands before the first dot")
    copies = file.numbers("disaster_copies", greatest=MOST_DISASTER_COPIES)
    return Namespaces(
        tuple(names.to_pylist()), tuple(file.text("tenant").to_pylist()), tuple(int(each) for each in copies)
    )


def _partitions(file: ColumnFile | None, tables: pa.Array) -> Partitions:
    if file is None:
        nothing = np.zeros(0)
        return Partitions(nothing.astype(np.int32), (), nothing.astype(np.int64), (), nothing)
    names = file.text("partition")
    for row in np.flatnonzero(~_matches(names, _FILE_NAME))[:SHOWN_ROWS]:
        name = names[int(row)].as_py()
        said = (
            f"is {in_quotes(name)}; it is named as a file: without /, no dot at the beginning" if name else "is empty"
        )
        file.problem(int(row), "partition", f"{said}; give the partition a name")
    table = file.indices("table", tables, "table")
    name_places = names.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    _repeated(file, table.astype(np.int64) * (len(names) + 1) + name_places, "partition", "partition of its table")
    sizes = file.numbers("size_bytes", greatest=GREATEST_BYTES).astype(np.int64)
    created = file.numbers("created_s")
    return Partitions(table, LateNames(names), sizes, LateNames(file.text("checksum")), created)


def _copy_ages(file: ColumnFile | None, tables: Tables, names: pa.Array, regions: pa.Array) -> CopyAges:
    if file is None:
        nothing = np.zeros(0)
        return CopyAges(nothing.astype(np.int32), nothing.astype(np.int32), nothing)
    table, region = file.indices("table", names, "table"), file.indices("region", regions, "region")
    _repeated(file, table.astype(np.int64) * (len(regions) + 1) + region, "table", "copy")
    held = tables.replicas[table] >> region.astype(np.int64) & 1 if tables.count else np.zeros(0)
    for row in np.flatnonzero(held == 0)[:SHOWN_ROWS]:
        name, where = names[int(table[row])].as_py(), regions[int(region[row])].as_py()
        file.problem(
            int(row),
            "region",
            f"table {in_quotes(name)} has no copy in {where}; name it in replicas of tables, or drop the row",
        )
    return CopyAges(table, region, file.numbers("complete_until_s"))


def _repeated(file: ColumnFile, keys: np.ndarray[tuple[int], np.dtype[np.int64]], field: str, what: str) -> None:
    _, first = np.unique(keys, return_index=True)
    again = np.ones(len(keys), np.bool_)
    again[first] = False
    for row in np.flatnonzero(again)[:SHOWN_ROWS]:
        file.problem(int(row), field, f"this {what} is there twice; keep one row")


def _matches(names: pa.Array, pattern: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(pc.match_substring_regex(names, pattern).to_numpy(zero_copy_only=False), np.bool_)


def _name_problems(tables: pa.Array) -> list[FieldProblem]:
    """Names that no workload could give, or that are no place in a region's storage."""
    good = _matches(tables, f"^{IDENTIFIER_PATTERN}$") & ~_matches(tables, _NO_PATH)
    return [
        FieldProblem(
            f"tables row {row + 1}, table",
            f"is {in_quotes(tables[int(row)].as_py())}; a name has 1 to 128 letters, digits and . _ : / -, begins with a"
            " letter or digit, and no part of it between / is empty, . or ..",
        )
        for row in np.flatnonzero(~good)[:SHOWN_ROWS]
    ]


def _storage_problems(regions: Regions) -> list[FieldProblem]:
    return [
        FieldProblem(f"regions row {row + 1}, storage_bytes", f"must be at most {GREATEST_BYTES}")
        for row in np.flatnonzero(regions.storage_bytes > GREATEST_BYTES)[:SHOWN_ROWS]
    ]


def _size_problems(tables: Tables, largest: float) -> list[FieldProblem]:
    """Tables that no region could ever hold."""
    return [
        FieldProblem(
            f"tables row {row + 1}, size_bytes",
            f"is {int(tables.size_bytes[row])}, and the largest region stores {largest:.0f}; split {tables.names[int(row)]},"
            " or correct storage_bytes of regions",
        )
        for row in np.flatnonzero(tables.size_bytes > largest)[:SHOWN_ROWS]
    ]


def _sum_problems(tables: Tables, partitions: Partitions) -> list[FieldProblem]:
    """Tables that are not as large as their partitions together."""
    count = np.bincount(partitions.table[partitions.table >= 0], minlength=tables.count)
    total = np.zeros(tables.count, np.int64)
    np.add.at(total, partitions.table[partitions.table >= 0], partitions.size_bytes[partitions.table >= 0])
    return [
        FieldProblem(
            f"tables row {row + 1}, size_bytes",
            f"is {int(tables.size_bytes[row])}, but the partitions have {int(total[row])} bytes together; make them equal",
        )
        for row in np.flatnonzero((count > 0) & (total != tables.size_bytes))[:SHOWN_ROWS]
    ]
