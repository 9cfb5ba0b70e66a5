"""Tables with columns of their own: the common part of reading them, so that a format is only its row's meaning."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from formats.problems import FieldProblem, FormatError
from formats.row_report import RowReport
from formats.trace import TraceRow
from simulator.inputs.importers.accepting import accepted_rows
from simulator.inputs.importers.importer import FileHead


class _RowReader(Protocol):
    """What `csv.reader` gives."""

    @property
    def line_num(self) -> int: ...

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class TableImporter:
    """A delimited table whose rows become workloads one by one.

    `convert` makes a row of a trace from the cells by column; it raises BadCell for a row that makes no sense and
    LeftOut for one that is no work, and counts as adjusted what it could not keep exactly.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    """What the header must have, and what the file is recognised by."""
    convert: Callable[[Mapping[str, str], RowReport], TraceRow]
    delimiter: str = ","
    epoch: bool = False
    header: tuple[str, ...] = ()
    """The columns of a file without a header line; empty when the file has one."""

    def recognises(self, head: FileHead) -> bool:
        cells = head.cells(self.delimiter)
        return set(self.columns) <= set(cells)

    def rows(self, lines: Iterable[str], row_report: RowReport) -> Iterator[TraceRow]:
        if self.delimiter == ",":
            reader = csv.reader(lines, strict=True)
        else:
            # Only comma-separated files quote; in the others a quote is a character like any other.
            reader = csv.reader(lines, delimiter=self.delimiter, strict=True, quoting=csv.QUOTE_NONE)
        header, first = self._header(reader, row_report.source)
        return accepted_rows(_records(reader, header, first, row_report), self.convert, header[0], row_report)

    def _header(self, reader: _RowReader, source: str) -> tuple[tuple[str, ...], list[str] | None]:
        """The columns, and the first line when it was not a header but a row."""
        try:
            first = next(reader, [])
        except csv.Error as error:
            raise FormatError(source, [FieldProblem("line 1", f"is not a table: {error}")]) from error
        names = tuple(cell.strip() for cell in first)
        if self.header and names != self.header:
            return self.header, first
        missing = [column for column in self.columns if column not in names]
        if missing:
            described = f"has no column {', '.join(missing)}, which {self.title} has; name the format with --format"
            raise FormatError(source, [FieldProblem("line 1", f"{described}. Its columns: {', '.join(names[:30])}")])
        return names, None


def _records(
    reader: _RowReader, header: tuple[str, ...], first: list[str] | None, row_report: RowReport
) -> Iterator[tuple[int, dict[str, str]]]:
    """The lines as cells by column, beginning with `first`; lines that are no rows of the table are bad."""
    width = len(header)
    number = 1
    cells = first
    while True:
        if cells and len(cells) == width:
            yield number, dict(zip(header, map(str.strip, cells), strict=True))
        elif cells:
            row_report.bad(number, "the row", f"has {len(cells)} cells, but the header has {width}")
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row_report.bad(reader.line_num, "the row", f"is not a table: {error}")
            cells = None
        number = reader.line_num
