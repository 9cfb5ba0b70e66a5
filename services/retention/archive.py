"""The archive: a folder with a folder for each table, and in it a Parquet file for each batch that was taken out.

A file is there whole or not at all, and on the disk before anything is deleted. Its name follows from the keys of its
rows: when a batch is taken out again after a crash, its file takes the place of the one that is there. So the archive
may hold a row twice at most (as two different batches do that overlap), and never lacks one.
"""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet
from sqlalchemy import BigInteger, Boolean, DateTime, Float, Integer, SmallInteger, Table, Text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import TypeEngine

from services.database.tables.events import EVENTS

_EVENTS: Final = EVENTS.name
_COMMON: Final = ("t", "event", "workload", "attempt", "tenant", "priority", "level", "region", "cluster")


class ArchiveUnusable(Exception):
    """The folder cannot be written, or what is in it cannot be read; says why and what to do."""


class Archive:
    """A folder to which batches of rows are added."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def require_writable(self) -> None:
        """Makes the folder if need be; raises ArchiveUnusable when nothing can be written to it."""
        probe = self._folder / f".probe-{os.getpid()}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ArchiveUnusable(
                f"{self._folder} cannot be written ({error.strerror}); name a folder that can, with room for what is old"
            ) from error

    def write(self, table: Table, rows: Sequence[Sequence[object]]) -> None:
        """Adds rows of a table, whose documents are texts; on return they are on the disk. Raises ArchiveUnusable."""
        if not rows:
            return
        folder = self._folder / table.name
        path = folder / f"{_name_of(table, rows)}.parquet"
        part = folder / f".part-{path.name}"
        schema = schema_of(table)
        columns = [pa.array(values, field.type) for field, values in zip(schema, zip(*rows, strict=True), strict=True)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb") as file:
                    pyarrow.parquet.write_table(pa.Table.from_arrays(columns, schema=schema), file, compression="zstd")
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(path)
                _sync_folder(folder)
            finally:
                part.unlink(missing_ok=True)
        except OSError as error:
            raise ArchiveUnusable(f"{path} cannot be written ({error}); nothing of this batch is deleted") from error


def schema_of(table: Table) -> pa.Schema:
    """The columns of a table as Parquet has them; documents are JSON in text."""
    return pa.schema([pa.field(column.name, _arrow_type(column.type), column.nullable) for column in table.columns])


def _arrow_type(type_: TypeEngine[Any]) -> pa.DataType:
    match type_:
        case ARRAY():
            return pa.list_(_arrow_type(type_.item_type))
        case JSONB() | Text():
            return pa.string()
        case Float():
            return pa.float64()
        case BigInteger() | Integer() | SmallInteger():
            return pa.int64()
        case Boolean():
            return pa.bool_()
        case DateTime():
            return pa.timestamp("us", tz="UTC")
        case _:
            raise TypeError(f"nothing says how a {type_} is archived")


def _name_of(table: Table, rows: Sequence[Sequence[object]]) -> str:
    """The first key, for order, and a digest of all of them."""
    places = [place for place, column in enumerate(table.columns) if column.primary_key]
    keys = [tuple(row[place] for place in places) for row in rows]
    first = keys[0][0]
    shown = (
        f"{first:020d}"
        if isinstance(first, int)
        else "".join(c if c.isalnum() or c in "-_" else "_" for c in str(first))
    )
    return f"{shown[:80]}-{blake2b(repr(keys).encode(), digest_size=8).hexdigest()}"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def archived_events(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The events of an archive by their places in the log, each once, as lines of the event log; raises ArchiveUnusable.

    A file is opened when its first event is due: in memory are those that overlap.
    """
    if not folder.is_dir():
        raise ArchiveUnusable(f"{folder} is no folder; name the one that was given as --archive")
    if any(folder.iterdir()) and not any(folder.glob("*/*.parquet")):
        raise ArchiveUnusable(
            f"{folder} holds no archive; name the folder that was given to topmast db prune --archive"
        )
    # Names begin with the place of the first event.
    files = sorted((folder / _EVENTS).glob("[0-9]*.parquet"))
    open_rows: list[tuple[int, int, list[dict[str, Any]]]] = []
    due, last = 0, -1
    while due < len(files) or open_rows:
        while due < len(files) and (not open_rows or int(files[due].name.split("-")[0]) <= open_rows[0][0]):
            rows = _rows_of(files[due])
            if rows:
                heapq.heappush(open_rows, (rows[-1]["sequence"], due, rows))
            due += 1
        if not open_rows:
            continue
        sequence, number, rows = heapq.heappop(open_rows)
        row = rows.pop()
        if rows:
            heapq.heappush(open_rows, (rows[-1]["sequence"], number, rows))
        if sequence > last:
            last = sequence
            yield sequence, _line_of(row)


def _rows_of(file: Path) -> list[dict[str, Any]]:
    """Last first."""
    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(file, schema=schema_of(EVENTS)).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ArchiveUnusable(f"{file} cannot be read ({error}); take it out of the archive or restore it") from error
    rows.sort(key=lambda row: -int(row["sequence"]))
    return rows


def _line_of(row: dict[str, Any]) -> dict[str, Any]:
    line = {name: row[name] for name in _COMMON if row[name] is not None}
    return line | dict(sorted(json.loads(row["details"]).items()))
