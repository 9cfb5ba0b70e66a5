"""What became of the rows of a table: how many were good, which were bad and where, what was left out on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from formats.problems import FieldProblem, FormatError
from formats.trace_cells import BadCell

SHOWN_BAD_ROWS = 20


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was left out: where, and why."""

    line: int
    column: str
    description: str

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.description}"


class RowReport:
    """Counts while a file is read. With `strict` the first bad row raises FormatError, with line and column."""

    def __init__(self, source: str, *, strict: bool = False) -> None:
        self.source = source
        self.strict = strict
        self.rows = 0
        """Good rows so far."""
        self.bad_rows = 0
        self.shown_bad_rows: list[BadRow] = []
        """The first of them."""
        self.ignored_columns: tuple[str, ...] = ()
        """Columns of the file that mean nothing here."""
        self._left_out: dict[str, int] = {}
        self._adjusted: dict[str, int] = {}
        self._ids: set[str] = set()

    @property
    def left_out(self) -> Mapping[str, int]:
        """Rows that are well-formed, but no work: how many for which reason, in order of appearance."""
        return MappingProxyType(self._left_out)

    @property
    def adjusted(self) -> Mapping[str, int]:
        """Rows that were taken, but not quite as they stand: how many in which way, in order of appearance."""
        return MappingProxyType(self._adjusted)

    def claim(self, column: str, identifier: str) -> None:
        """Remembers the id of a row; raises BadCell when an earlier one had it."""
        before = len(self._ids)
        self._ids.add(identifier)
        if len(self._ids) == before:
            raise BadCell(column, f"{identifier} is the id of an earlier row; ids are unique")

    def bad(self, line: int, column: str, description: str) -> None:
        """A row that makes no sense. Raises FormatError when strict."""
        bad = BadRow(line, column, description)
        if self.strict:
            problem = FieldProblem(f"line {line}, column {column}", description)
            raise FormatError(self.source, [problem])
        self.bad_rows += 1
        if len(self.shown_bad_rows) < SHOWN_BAD_ROWS:
            self.shown_bad_rows.append(bad)

    def leave_out(self, reason: str) -> None:
        """A row that is all right, but not a workload to run."""
        self._left_out[reason] = self._left_out.get(reason, 0) + 1

    def adjust(self, way: str) -> None:
        """A row that says something that cannot be kept exactly."""
        self._adjusted[way] = self._adjusted.get(way, 0) + 1
