"""A warehouse as a folder of columns: Parquet or CSV files of regions, GPU supply, tables, jobs and what they read.

`regions`, `supply`, `tables`, `jobs` and `reads` must be there, each as .parquet or .csv; `quotas` and `links` may be.
Columns are found by name, in any order; others are passed over. What is wrong is said with file, row and remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from domain.warehouse import MOST_REGIONS, NOWHERE, Floats, Indices, Integers, Jobs, Regions, Tables, Warehouse
from formats.problems import FieldProblem, FormatError, in_quotes, suggestion

TRAINING = "training"
ANALYTICS = "analytics"
_REPLICA_SEPARATOR = " "
_ENDINGS = (".parquet", ".csv")


class Column(NamedTuple):
    """A column of a file. `default`: what it holds where the file lacks it; None: it must be there."""

    name: str
    text: bool
    default: str | float | None = None


_FILES: Mapping[str, Sequence[Column]] = MappingProxyType(
    {
        "regions": (Column("region", text=True), Column("storage_bytes", text=False)),
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
        "reads": (Column("job", text=True), Column("table", text=True)),
        "quotas": (Column("application", text=True), Column("region", text=True), Column("cpu_hours", text=False)),
        "links": (Column("source", text=True), Column("target", text=True), Column("bytes_per_day", text=False)),
    }
)
_OPTIONAL = frozenset({"quotas", "links"})


class _File:
    """A file that has been read: its columns, and what is wrong with them."""

    def __init__(self, path: Path, columns: Mapping[str, pa.Array], problems: list[FieldProblem]) -> None:
        self.path = path
        self._columns = columns
        self.problems = problems
        self.rows = len(next(iter(columns.values())))

    def text(self, name: str) -> pa.Array:
        return self._columns[name]

    def numbers(self, name: str, *, least: float = 0.0) -> Floats:
        """The numbers; those that are none, or below the least, become problems."""
        values = np.asarray(pc.fill_null(self._columns[name], np.nan).to_numpy(zero_copy_only=False), np.float64)
        wrong = ~(values >= least) | ~np.isfinite(values)
        for row in np.flatnonzero(wrong)[:_SHOWN]:
            self.problem(int(row), name, f"must be {least:g} or greater, not {values[row]:g}")
        return np.where(wrong, least, values)

    def indices(self, name: str, known: pa.Array, what: str, *, empty_is_none: bool = False) -> Indices:
        """The place of each name among the known ones; unknown ones become problems."""
        column = self._columns[name]
        found = pc.index_in(column, value_set=known)
        places = np.asarray(pc.fill_null(found, NOWHERE).to_numpy(zero_copy_only=False), np.int32)
        wrong = places < 0
        if empty_is_none:
            wrong &= np.asarray(pc.not_equal(column, "").to_numpy(zero_copy_only=False), np.bool_)
        for row in np.flatnonzero(wrong)[:_SHOWN]:
            value = column[int(row)].as_py()
            help_sentence = suggestion(value, known.to_pylist()[:10_000], what)
            self.problem(int(row), name, f"there is no {what} {in_quotes(value)}; {help_sentence}")
        return np.where(wrong, 0 if len(known) else NOWHERE, places).astype(np.int32)

    def unique_names(self, name: str, what: str) -> pa.Array:
        """The names; empty ones and those that come again become problems."""
        column = self._columns[name]
        for row in np.flatnonzero(pc.equal(column, "").to_numpy(zero_copy_only=False))[:_SHOWN]:
            self.problem(int(row), name, f"is empty; give the {what} a name")
        encoded = (
            pc.dictionary_encode(column).combine_chunks()
            if isinstance(column, pa.ChunkedArray)
            else column.dictionary_encode()
        )
        if len(encoded.dictionary) < len(column):
            places = encoded.indices.to_numpy(zero_copy_only=False)
            _, first = np.unique(places, return_index=True)
            again = np.ones(len(places), np.bool_)
            again[first] = False
            for row in np.flatnonzero(again)[:_SHOWN]:
                self.problem(
                    int(row), name, f"the {what} {in_quotes(column[int(row)].as_py())} is there twice; keep one row"
                )
        return column

    def problem(self, row: int, field: str, description: str) -> None:
        """Notes what is wrong; rows count from 1, without the header."""
        self.problems.append(FieldProblem(f"{self.path.name} row {row + 1}, {field}", description))


_SHOWN = 10
"""Of each kind of problem in a column so many are noted."""


def read_warehouse(folder: Path) -> Warehouse:
    """The warehouse of a folder. Raises FormatError with everything that is wrong, field by field."""
    if not folder.is_dir():
        raise FormatError(str(folder), [FieldProblem("", "is no folder; `topmast data generate -o DIR` makes one")])
    problems: list[FieldProblem] = []
    files = {name: _read_file(folder, name, problems) for name in _FILES}
    required = {name: file for name, file in files.items() if file is not None}
    if any(name not in required for name in _FILES if name not in _OPTIONAL):
        raise FormatError(str(folder), problems)
    regions = _regions(required)
    known_regions = pa.array(regions.names)
    tables = _tables(required["tables"], known_regions)
    jobs = _jobs(required["jobs"], required["reads"], required["tables"].text("table"), regions)
    if problems:
        raise FormatError(str(folder), problems)
    return Warehouse(regions, tables, jobs)


def _read_file(folder: Path, name: str, problems: list[FieldProblem]) -> _File | None:
    """The file in one of the two formats; None, and a problem unless it is optional, where there is neither."""
    found = [folder / f"{name}{ending}" for ending in _ENDINGS if (folder / f"{name}{ending}").is_file()]
    columns = _FILES[name]
    if not found:
        if name not in _OPTIONAL:
            listed = ", ".join(column.name for column in columns)
            problems.append(
                FieldProblem(f"{name}.parquet", f"is missing; make it, or {name}.csv, with the columns {listed}")
            )
        return None
    path = found[0]
    try:
        if path.suffix == ".csv":
            types = {column.name: pa.string() for column in columns if column.text}
            convert = pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
            table = pyarrow.csv.read_csv(path, convert_options=convert)
        else:
            table = pyarrow.parquet.read_table(path)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError) as error:
        problems.append(FieldProblem(path.name, f"cannot be read: {error}"))
        return None
    return _file_of(path, table, columns, problems)


def _file_of(path: Path, table: pa.Table, columns: Sequence[Column], problems: list[FieldProblem]) -> _File | None:
    """The columns that are asked for, as text or as numbers."""
    taken: dict[str, pa.Array] = {}
    for column in columns:
        if column.name not in table.column_names:
            if column.default is None:
                names = ", ".join(table.column_names) or "none"
                problems.append(FieldProblem(path.name, f"has no column {column.name}; it has {names}"))
                continue
            kind = pa.string() if column.text else pa.float64()
            taken[column.name] = pa.repeat(pa.scalar(column.default, kind), table.num_rows)
            continue
        try:
            values = table[column.name].combine_chunks().cast(pa.string() if column.text else pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            problems.append(
                FieldProblem(
                    f"{path.name}, {column.name}", f"holds what is no {'text' if column.text else 'number'}: {error}"
                )
            )
            continue
        taken[column.name] = pc.fill_null(values, "") if column.text else values
    return _File(path, taken, problems) if len(taken) == len(columns) else None


def _regions(files: Mapping[str, _File]) -> Regions:
    file, supply = files["regions"], files["supply"]
    names = file.unique_names("region", "region")
    if not 1 <= len(names) <= MOST_REGIONS:
        file.problems.append(
            FieldProblem(file.path.name, f"has {len(names)} regions; there must be 1 to {MOST_REGIONS}")
        )
    models = pc.unique(supply.text("gpu_model")).sort()
    hours = _matrix(supply, ("gpu_model", models, "GPU model"), ("region", names, "region"), "gpu_hours")
    quotas, links = files.get("quotas"), files.get("links")
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
    )


def _matrix(file: _File, rows: tuple[str, pa.Array, str], columns: tuple[str, pa.Array, str], amounts: str) -> Floats:
    """The amounts by two names; 0 where the file has no row. A pair that comes twice is a problem."""
    first = file.indices(*rows).astype(np.int64)
    second = file.indices(*columns).astype(np.int64)
    values = file.numbers(amounts)
    matrix = np.zeros((len(rows[1]), len(columns[1])))
    seen = np.zeros(matrix.shape, np.bool_)
    for row, (line, place) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        if line < 0 or place < 0:
            continue
        if seen[line, place]:
            file.problem(row, rows[0], f"this {rows[2]} and {columns[0]} are there twice; keep one row")
        seen[line, place] = True
        matrix[line, place] = values[row]
    return matrix


def _tables(file: _File, regions: pa.Array) -> Tables:
    names = file.unique_names("table", "table")
    sizes = file.numbers("size_bytes")
    home = file.indices("home", regions, "region")
    return Tables(_Names(names), sizes.astype(np.int64), home, _replica_bits(file, regions, home))


def _replica_bits(file: _File, regions: pa.Array, home: Indices) -> Integers:
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


def _jobs(file: _File, reads: _File, tables: pa.Array, regions: Regions) -> Jobs:
    names = file.unique_names("job", "job")
    kinds = file.text("kind")
    for row in np.flatnonzero(~pc.is_in(kinds, pa.array([TRAINING, ANALYTICS])).to_numpy(zero_copy_only=False))[
        :_SHOWN
    ]:
        file.problem(int(row), "kind", f"must be {TRAINING} or {ANALYTICS}, not {in_quotes(kinds[int(row)].as_py())}")
    ranked = file.numbers("priority", least=-1e9)
    priorities = np.unique(ranked)[::-1]
    rank = (len(priorities) - 1 - np.searchsorted(priorities[::-1], ranked)).astype(np.int32)
    start, pairs = _pairs(reads, names, tables)
    return Jobs(
        names=_Names(names),
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
    )


def _pairs(reads: _File, jobs: pa.Array, tables: pa.Array) -> tuple[Integers, Indices]:
    """Which tables each job reads; a pair that comes twice counts once."""
    job = reads.indices("job", jobs, "job").astype(np.int64)
    table = reads.indices("table", tables, "table").astype(np.int64)
    combined = np.unique(job * max(1, len(tables)) + table) if len(tables) else np.zeros(0, np.int64)
    start = np.zeros(len(jobs) + 1, np.int64)
    np.cumsum(np.bincount(combined // max(1, len(tables)), minlength=len(jobs)), out=start[1:])
    return start, (combined % max(1, len(tables))).astype(np.int32)


class _Names(Sequence[str]):
    """A million names, each made into a string only when it is asked for."""

    def __init__(self, column: pa.Array) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, place: int) -> str:  # type: ignore[override]  # a slice of names is never asked for
        return str(self.column[int(place)].as_py())


def write_warehouse(folder: Path, warehouse: Warehouse) -> None:
    """Writes all files (Parquet) into the folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in _columns_of(warehouse).items():
        pyarrow.parquet.write_table(table, folder / f"{name}.parquet")


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
    if regions.cpu_hours is not None:
        found["quotas"] = _list_of(
            regions.cpu_hours, ("application", regions.applications), ("region", regions.names), "cpu_hours"
        )
    if regions.link_bytes_per_day is not None:
        found["links"] = _list_of(
            regions.link_bytes_per_day, ("source", regions.names), ("target", regions.names), "bytes_per_day"
        )
    return found


def _column(names: Sequence[str]) -> pa.Array:
    return names.column if isinstance(names, _Names) else pa.array(names, pa.string())


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
