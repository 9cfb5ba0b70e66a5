"""A warehouse as a folder of columns: Parquet or CSV files of regions, GPU supply, tables, jobs and what they read.

`regions`, `supply`, `tables`, `jobs` and `reads` must be there, each as .parquet or .csv; `quotas`, `links` and `failures` may be.
Columns are found by name, in any order; others are passed over. What is wrong is said with file, row and remedy.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from domain.warehouse import MOST_REGIONS, Floats, Indices, Integers, Jobs, Regions, Tables, Warehouse
from formats.problems import FieldProblem, FormatError, UnreadableInput, in_quotes, suggestion
from formats.warehouse_columns import SHOWN_ROWS, Column, ColumnFile, LateNames, read_columns

TRAINING = "training"
ANALYTICS = "analytics"
GREATEST_PRIORITY = 32_767
"""0 is the highest one."""
GREATEST_BYTES = 2**62
"""Of anything: so that sums of two still fit into what counts them."""
_REPLICA_SEPARATOR = " "


_FILES: Mapping[str, Sequence[Column]] = MappingProxyType(
    {
        "regions": (
            Column("region", text=True),
            Column("storage_bytes", text=False),
            Column("spare_gpu_share", text=False, default=math.nan),
        ),
        "supply": (Column("region", text=True), Column("gpu_model", text=True), Column("gpu_hours", text=False)),
        "tables": (
            Column("table", text=True),
            Column("size_bytes", text=False),
            Column("home", text=True),
            Column("replicas", text=True, default=""),
        ),
        "jobs": (
            Column("job", text=True),
            Column("kind", text=True, default=TRAINING),
            Column("gpu_model", text=True, default=""),
            Column("priority", text=False, default=0),
            Column("gpu_hours", text=False, default=0.0),
            Column("cpu_hours", text=False, default=0.0),
            Column("application", text=True, default=""),
            Column("weight", text=False, default=1.0),
        ),
        "reads": (
            Column("job", text=True),
            Column("table", text=True),
            Column("newest_share", text=False, default=1.0),
        ),
        "quotas": (Column("application", text=True), Column("region", text=True), Column("cpu_hours", text=False)),
        "links": (Column("source", text=True), Column("target", text=True), Column("bytes_per_day", text=False)),
        "failures": (Column("region", text=True), Column("other", text=True), Column("probability", text=False)),
    }
)
_OPTIONAL = frozenset({"quotas", "links", "failures"})


def read_warehouse(folder: Path) -> Warehouse:
    """The warehouse of a folder. Raises FormatError with everything that is wrong, field by field, UnreadableInput without a folder."""
    if not folder.is_dir():
        raise UnreadableInput(str(folder), [FieldProblem("", "is no folder; `topmast data generate -o DIR` makes one")])
    problems: list[FieldProblem] = []
    files = {
        name: read_columns(folder, name, columns, problems, optional=name in _OPTIONAL)
        for name, columns in _FILES.items()
    }
    required = {name: file for name, file in files.items() if file is not None}
    if any(name not in required for name in _FILES if name not in _OPTIONAL):
        raise FormatError(str(folder), problems)
    regions = _regions(required)
    known_regions = pa.array(regions.names, pa.string())
    tables = _tables(required["tables"], known_regions)
    jobs = _jobs(required["jobs"], required["reads"], required["tables"].text("table"), regions)
    if problems:
        raise FormatError(str(folder), problems)
    return Warehouse(regions, tables, jobs)


def _regions(files: Mapping[str, ColumnFile]) -> Regions:
    file, supply = files["regions"], files["supply"]
    names = file.unique_names("region", "region")
    if not 1 <= len(names) <= MOST_REGIONS:
        file.problems.append(
            FieldProblem(file.path.name, f"has {len(names)} regions; there must be 1 to {MOST_REGIONS}")
        )
    models = pc.unique(supply.text("gpu_model")).sort()
    hours = _matrix(supply, ("gpu_model", models, "GPU model"), ("region", names, "region"), "gpu_hours")
    quotas, links, failures = files.get("quotas"), files.get("links"), files.get("failures")
    applications = pc.unique(quotas.text("application")).sort() if quotas is not None else pa.array([], pa.string())
    return Regions(
        names=tuple(names.to_pylist()),
        storage_bytes=file.numbers("storage_bytes"),
        gpu_models=tuple(models.to_pylist()),
        gpu_hours=hours,
        applications=tuple(applications.to_pylist()),
        cpu_hours=None
        if quotas is None
        else _matrix(quotas, ("application", applications, "application"), ("region", names, "region"), "cpu_hours"),
        link_bytes_per_day=None
        if links is None
        else _matrix(links, ("source", names, "region"), ("target", names, "region"), "bytes_per_day"),
        correlated_failures=None if failures is None else _correlated(failures, names),
        spare_gpu_share=_spare_shares(file),
    )


def _correlated(file: ColumnFile, names: pa.Array) -> Floats:
    """(regions, regions); a pair without a row of its own is as likely as the other way round."""
    given = _matrix(file, ("region", names, "region"), ("other", names, "region"), "probability", greatest=1.0)
    return np.where(given > 0.0, given, given.T)


def _spare_shares(file: ColumnFile) -> Floats | None:
    """(regions,) NaN where a cell is empty; None where all are."""
    left_out = np.isnan(np.asarray(file.text("spare_gpu_share").to_numpy(zero_copy_only=False), np.float64))
    return None if left_out.all() else file.numbers("spare_gpu_share", greatest=1.0, or_none=True)


def _matrix(
    file: ColumnFile,
    rows: tuple[str, pa.Array, str],
    columns: tuple[str, pa.Array, str],
    amounts: str,
    greatest: float = sys.float_info.max,
) -> Floats:
    """The amounts by two names; 0 where the file has no row. A pair that comes twice is a problem."""
    known_problems = len(file.problems)
    first = file.indices(*rows).astype(np.int64)
    second = file.indices(*columns).astype(np.int64)
    is_known = len(file.problems) == known_problems
    values = file.numbers(amounts, greatest=greatest)
    matrix = np.zeros((len(rows[1]), len(columns[1])))
    if not is_known:
        # Which amounts belong where nobody knows then, so none is there twice.
        return matrix
    seen = np.zeros(matrix.shape, np.bool_)
    for row, (line, place) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        if line < 0 or place < 0:
            continue
        if seen[line, place]:
            file.problem(row, rows[0], f"this {rows[2]} and {columns[0]} are there twice; keep one row")
        seen[line, place] = True
        matrix[line, place] = values[row]
    return matrix


def _tables(file: ColumnFile, regions: pa.Array) -> Tables:
    names = file.unique_names("table", "table")
    sizes = file.numbers("size_bytes")
    for row in np.flatnonzero(sizes > GREATEST_BYTES)[:SHOWN_ROWS]:
        file.problem(int(row), "size_bytes", f"must be at most {GREATEST_BYTES}, not {sizes[row]:g}")
    sizes = np.minimum(sizes, GREATEST_BYTES)
    home = file.indices("home", regions, "region")
    return Tables(LateNames(names), sizes.astype(np.int64), home, _replica_bits(file, regions, home))


def _replica_bits(file: ColumnFile, regions: pa.Array, home: Indices) -> Integers:
    """The sets of regions with a copy; each cell lists names with spaces between them."""
    column = file.text("replicas")
    encoded = column.dictionary_encode()
    known = {name: place for place, name in enumerate(regions.to_pylist())}
    bits: list[int] = []
    unknown: dict[int, str] = {}
    for place, listed in enumerate(encoded.dictionary.to_pylist()):
        mask = 0
        for name in listed.split():
            if name in known:
                mask |= 1 << known[name]
            else:
                unknown[place] = name
        bits.append(mask)
    places = encoded.indices.to_numpy(zero_copy_only=False)
    for place in sorted(unknown):
        row = int(np.flatnonzero(places == place)[0])
        file.problem(
            row,
            "replicas",
            f"there is no region {in_quotes(unknown[place])}; {suggestion(unknown[place], known, 'region')}",
        )
    masks = np.array(bits, np.int64)[places] if len(places) else np.zeros(0, np.int64)
    return np.asarray(masks & ~(np.int64(1) << home.astype(np.int64)))


def _jobs(file: ColumnFile, reads: ColumnFile, tables: pa.Array, regions: Regions) -> Jobs:
    names = file.unique_names("job", "job")
    kinds = file.text("kind")
    for row in np.flatnonzero(~pc.is_in(kinds, pa.array([TRAINING, ANALYTICS])).to_numpy(zero_copy_only=False))[
        :SHOWN_ROWS
    ]:
        file.problem(int(row), "kind", f"must be {TRAINING} or {ANALYTICS}, not {in_quotes(kinds[int(row)].as_py())}")
    ranked = file.numbers("priority", greatest=GREATEST_PRIORITY)
    priorities = np.unique(ranked)
    rank = np.searchsorted(priorities, ranked).astype(np.int32)
    start, pairs, newest_share = _pairs(reads, names, tables)
    return Jobs(
        names=LateNames(names),
        training=np.asarray(pc.equal(kinds, TRAINING).to_numpy(zero_copy_only=False), np.bool_),
        gpu_model=file.indices("gpu_model", pa.array(regions.gpu_models, pa.string()), "GPU model", empty_is_none=True),
        priority=rank,
        priorities=tuple(int(priority) for priority in priorities),
        gpu_hours=file.numbers("gpu_hours"),
        cpu_hours=file.numbers("cpu_hours"),
        application=file.indices(
            "application", pa.array(regions.applications, pa.string()), "application with quotas", empty_is_none=True
        ),
        weight=file.numbers("weight"),
        table_start=start,
        tables=pairs,
        newest_share=newest_share,
    )


def _pairs(reads: ColumnFile, jobs: pa.Array, tables: pa.Array) -> tuple[Integers, Indices, Floats | None]:
    """Which tables each job reads, and which newest part of them (None: all of all); a pair that comes twice counts once,
    with the larger part.
    """
    job = reads.indices("job", jobs, "job").astype(np.int64)
    table = reads.indices("table", tables, "table").astype(np.int64)
    share = reads.numbers("newest_share", greatest=1.0)
    for row in np.flatnonzero(share <= 0.0)[:SHOWN_ROWS]:
        reads.problem(int(row), "newest_share", "must be more than 0; leave the row out where nothing is read")
    # Sorted, not hashed as np.unique does: of five million pairs that takes a tenth of the time.
    numbered = job * len(tables) + table if len(tables) and len(jobs) else np.zeros(0, np.int64)
    newest_share = None
    if (share < 1.0).any():
        order = np.argsort(numbered, kind="stable")
        combined, begin = _distinct(numbered[order])
        newest_share = np.maximum.reduceat(share[order], begin) if len(begin) else np.zeros(0)
    else:
        combined, _ = _distinct(np.sort(numbered))
    start = np.zeros(len(jobs) + 1, np.int64)
    np.cumsum(np.bincount(combined // max(1, len(tables)), minlength=len(jobs)), out=start[1:])
    return start, (combined % max(1, len(tables))).astype(np.int32), newest_share


def _distinct(ascending: Integers) -> tuple[Integers, Integers]:
    """Each number once, and where each begins."""
    begin = np.flatnonzero(np.diff(ascending, prepend=-1))
    return ascending[begin], begin


def write_warehouse(folder: Path, warehouse: Warehouse, *, beside: Collection[str] = ()) -> None:
    """Writes all files (Parquet) into the folder, which is made.

    Raises FormatError, and writes nothing, where the folder has other files of a warehouse: they would be read with these.
    `beside` names files that may be there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    columns = _columns_of(warehouse)
    written = {f"{name}.parquet" for name in (*columns, *beside)}
    others = [path.name for path in sorted(folder.iterdir()) if path.suffix in (".parquet", ".csv")]
    problems = [
        FieldProblem(name, "would be read with what is written; remove it, or name another folder")
        for name in others
        if name not in written
    ]
    if problems:
        raise FormatError(str(folder), problems)
    for name, table in columns.items():
        # A dictionary of a million names is a way to write them. Whoever was told of it would have to build it again.
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet", store_schema=False)


def _columns_of(warehouse: Warehouse) -> dict[str, pa.Table]:
    regions, tables, jobs = warehouse.regions, warehouse.tables, warehouse.jobs
    names = pa.array(regions.names, pa.string())
    job_names, table_names = _column(jobs.names), _column(tables.names)
    job_of_pair = np.repeat(np.arange(jobs.count, dtype=np.int32), np.diff(jobs.table_start))
    priorities = np.array(jobs.priorities, np.int64)
    found = {
        "regions": pa.table({"region": names, "storage_bytes": regions.storage_bytes}),
        "supply": _list_of(
            regions.gpu_hours, ("gpu_model", regions.gpu_models), ("region", regions.names), "gpu_hours"
        ),
        "tables": pa.table(
            {
                "table": table_names,
                "size_bytes": tables.size_bytes,
                "home": _named(regions.names, tables.home),
                "replicas": pa.array(_replica_names(regions.names, tables.replicas), pa.string()),
            }
        ),
        "jobs": pa.table(
            {
                "job": job_names,
                "kind": _named((ANALYTICS, TRAINING), jobs.training.astype(np.int32)),
                "gpu_model": _named(regions.gpu_models, jobs.gpu_model),
                "priority": priorities[jobs.priority] if jobs.count else priorities,
                "gpu_hours": jobs.gpu_hours,
                "cpu_hours": jobs.cpu_hours,
                "application": _named(regions.applications, jobs.application),
                "weight": jobs.weight,
            }
        ),
        "reads": pa.table(
            {
                "job": pa.DictionaryArray.from_arrays(job_of_pair, job_names),
                "table": pa.DictionaryArray.from_arrays(jobs.tables, table_names),
            }
        ),
    }
    if jobs.newest_share is not None:
        found["reads"] = found["reads"].append_column("newest_share", pa.array(jobs.newest_share))
    if regions.cpu_hours is not None:
        found["quotas"] = _list_of(
            regions.cpu_hours, ("application", regions.applications), ("region", regions.names), "cpu_hours"
        )
    if regions.link_bytes_per_day is not None:
        found["links"] = _list_of(
            regions.link_bytes_per_day, ("source", regions.names), ("target", regions.names), "bytes_per_day"
        )
    if regions.correlated_failures is not None:
        found["failures"] = _list_of(
            regions.correlated_failures, ("region", regions.names), ("other", regions.names), "probability"
        )
    if regions.spare_gpu_share is not None:
        found["regions"] = found["regions"].append_column("spare_gpu_share", pa.array(regions.spare_gpu_share))
    return found


def _column(names: Sequence[str]) -> pa.Array:
    return names.column if isinstance(names, LateNames) else pa.array(names, pa.string())


def _named(names: Sequence[str], places: Indices) -> pa.Array:
    """The names at these places; empty where a place is -1."""
    listed = pa.array(["", *names], pa.string())
    return pa.DictionaryArray.from_arrays(places + np.int32(1), listed)


def _replica_names(names: Sequence[str], masks: Integers) -> list[str]:
    texts: dict[int, str] = {}
    for mask in np.unique(masks).tolist():
        texts[mask] = _REPLICA_SEPARATOR.join(name for place, name in enumerate(names) if mask >> place & 1)
    return [texts[mask] for mask in masks.tolist()]


def _list_of(
    matrix: Floats, rows: tuple[str, Sequence[str]], columns: tuple[str, Sequence[str]], amounts: str
) -> pa.Table:
    """A row for each amount; also where it is 0, so that every name is there."""
    first, second = np.divmod(np.arange(matrix.size), max(1, matrix.shape[1]))
    return pa.table(
        {
            rows[0]: pa.array([rows[1][place] for place in first.tolist()], pa.string()),
            columns[0]: pa.array([columns[1][place] for place in second.tolist()], pa.string()),
            amounts: matrix[first, second],
        }
    )
