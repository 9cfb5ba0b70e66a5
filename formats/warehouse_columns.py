"""The columns of Parquet and CSV files, with everything that is wrong with them: file, row, column and remedy.

Columns are found by name, in any order; others are passed over.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from domain.warehouse import NOWHERE, Floats, Indices
from formats.problems import FieldProblem, in_quotes, suggestion

_ENDINGS = (".parquet", ".csv")
SHOWN_ROWS = 10
"""Of each kind of problem in a column so many are noted."""


class Column(NamedTuple):
    """A column of a file. `default`: what it holds where the file lacks it; None: it must be there."""

    name: str
    text: bool
    default: str | float | None = None


class ColumnFile:
    """A file that has been read: its columns, and what is wrong with them."""

    def __init__(self, path: Path, columns: Mapping[str, pa.Array], problems: list[FieldProblem]) -> None:
        self.path = path
        self._columns = columns
        self.problems = problems
        self.rows = len(next(iter(columns.values())))

    def text(self, name: str) -> pa.Array:
        return self._columns[name]

    def numbers(
        self, name: str, *, least: float = 0.0, greatest: float = sys.float_info.max, or_none: bool = False
    ) -> Floats:
        """The numbers; those that are none, or out of bounds, become problems. `or_none`: a cell may be empty, and is NaN."""
        values = np.asarray(pc.fill_null(self._columns[name], np.nan).to_numpy(zero_copy_only=False), np.float64)
        wrong = ~((values >= least) & (values <= greatest) | (or_none & np.isnan(values)))
        most = "" if greatest == sys.float_info.max else f" and at most {greatest:g}"
        for row in np.flatnonzero(wrong)[:SHOWN_ROWS]:
            self.problem(int(row), name, f"must be {least:g} or greater{most}, not {values[row]:g}")
        return np.where(wrong, least, values)

    def indices(self, name: str, known: pa.Array, what: str, *, empty_is_none: bool = False) -> Indices:
        """The place of each name among the known ones; unknown ones become problems."""
        column = self._columns[name]
        found = pc.index_in(column, value_set=known)
        places = np.asarray(pc.fill_null(found, NOWHERE).to_numpy(zero_copy_only=False), np.int32)
        wrong = places < 0
        if empty_is_none:
            wrong &= np.asarray(pc.not_equal(column, "").to_numpy(zero_copy_only=False), np.bool_)
        for row in np.flatnonzero(wrong)[:SHOWN_ROWS]:
            value = column[int(row)].as_py()
            help_sentence = suggestion(value, known.to_pylist()[:10_000], what)
            self.problem(int(row), name, f"there is no {what} {in_quotes(value)}; {help_sentence}")
        return np.where(wrong, 0 if len(known) else NOWHERE, places).astype(np.int32)

    def unique_names(self, name: str, what: str) -> pa.Array:
        """The names; empty ones and those that come again become problems."""
        column = self._columns[name]
        for row in np.flatnonzero(pc.equal(column, "").to_numpy(zero_copy_only=False))[:SHOWN_ROWS]:
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
            for row in np.flatnonzero(again)[:SHOWN_ROWS]:
                self.problem(
                    int(row), name, f"the {what} {in_quotes(column[int(row)].as_py())} is there twice; keep one row"
                )
        return column

    def problem(self, row: int, field: str, description: str) -> None:
        """Notes what is wrong; rows count from 1, without the header."""
        self.problems.append(FieldProblem(f"{self.path.name} row {row + 1}, {field}", description))


def read_columns(
    folder: Path, name: str, columns: Sequence[Column], problems: list[FieldProblem], *, optional: bool
) -> ColumnFile | None:
    """The file in one of the two formats; None, and a problem unless it is optional, where there is neither."""
    found = [folder / f"{name}{ending}" for ending in _ENDINGS if (folder / f"{name}{ending}").is_file()]
    if not found:
        if not optional:
            listed = ", ".join(column.name for column in columns if column.default is None)
            problems.append(
                FieldProblem(f"{name}.parquet", f"is missing; make it, or {name}.csv, with the columns {listed}")
            )
        return None
    path = found[0]
    if len(found) > 1:
        other = found[1].name
        problems.append(
            FieldProblem(path.name, f"is there, and {other} is, too; remove the one that is not to be read")
        )
        return None
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


def _file_of(path: Path, table: pa.Table, columns: Sequence[Column], problems: list[FieldProblem]) -> ColumnFile | None:
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
        given = table[column.name].combine_chunks()
        try:
            # Integers beyond 2**53 become the nearest number that there is: a region without a limit stores 2**62 bytes.
            values = given.cast(pa.string() if column.text else pa.float64(), safe=not pa.types.is_integer(given.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            rows = _rows_without_number(given) if pa.types.is_string(given.type) and not column.text else []
            problems.extend(
                FieldProblem(f"{path.name} row {row + 1}, {column.name}", f"must be a number, not {in_quotes(text)}")
                for row, text in rows
            )
            if not rows:
                kind_name = "text" if column.text else "number"
                problems.append(FieldProblem(f"{path.name}, {column.name}", f"holds what is no {kind_name}: {error}"))
            continue
        taken[column.name] = pc.fill_null(values, "") if column.text else values
    return ColumnFile(path, taken, problems) if len(taken) == len(columns) else None


def _rows_without_number(texts: pa.Array) -> list[tuple[int, str]]:
    """The first rows, from 0, whose text is no number, with that text."""
    wrong: list[tuple[int, str]] = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            float(text or "nan")
        except ValueError:
            wrong.append((row, str(text)))
            if len(wrong) == SHOWN_ROWS:
                break
    return wrong


class LateNames(Sequence[str]):
    """A million names, each made into a string only when it is asked for."""

    def __init__(self, column: pa.Array) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    def __getitem__(self, place: int) -> str:  # type: ignore[override]  # a slice of names is never asked for
        return str(self.column[int(place)].as_py())
