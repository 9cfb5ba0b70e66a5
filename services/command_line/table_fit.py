"""How a table fits into a width: cells wrap by words, names are never split, and what finds no room is left out or goes below.

All functions are pure; `output.py` prints what comes out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

GAP = 2
"""Between two columns."""

_LONGEST_WORD = 40
"""What is longer in a sentence may be split: a path, or what somebody has typed without a space."""
_READABLE_PROSE = 28


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows of text under a head; the columns in `right` are aligned to the right. `title` is for terminals.

    Those in `prose` hold sentences: they get what the others leave. Where the table is too wide, those in `least` are left out,
    the first one first.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()
    prose: frozenset[int] = frozenset()
    least: tuple[int, ...] = ()

    def plain(self) -> str:
        """Columns with two spaces between them, under a head in capitals; "-" where there is nothing, "none" without rows."""
        if not self.rows:
            return f"{self.title.lower()}: none" if self.title else "none"
        cells = [[name.upper() for name in self.head], *([cell or "-" for cell in row] for row in self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(self.head))]
        lines = (
            "  ".join(
                cell.rjust(width) if column in self.right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        )
        return "\n".join(lines)

    def without(self, left_out: frozenset[int]) -> TextTable:
        """The same without these columns."""
        kept = [column for column in range(len(self.head)) if column not in left_out]
        now_at = {column: place for place, column in enumerate(kept)}
        return replace(
            self,
            head=[self.head[column] for column in kept],
            rows=[[row[column] for column in kept] for row in self.rows],
            right=frozenset(now_at[column] for column in self.right if column in now_at),
            prose=frozenset(now_at[column] for column in self.prose if column in now_at),
            least=tuple(now_at[column] for column in self.least if column in now_at),
        )


@dataclass(frozen=True, slots=True)
class FittedTable:
    """`widths` are those of the columns of `table`; None: it does not fit even so, and is shown as a list of its cells.

    `left_out` are the heads of columns for which there is no room.
    """

    table: TextTable
    widths: tuple[int, ...] | None
    left_out: tuple[str, ...]


def fit(table: TextTable, width: int | None) -> FittedTable:
    """The table in so many columns of characters; None: there is no limit."""
    natural = [max((len(cell) for cell in cells), default=0) for cells in _columns(table)]
    if width is None or _total(natural) <= width:
        return FittedTable(table, tuple(natural), ())
    # What is empty in every row is no loss.
    empty = [column for column in table.least if not any(row[column] for row in table.rows)]
    order = [*empty, *(column for column in table.least if column not in empty)]
    for dropped in range(len(order) + 1):
        left_out = frozenset(order[:dropped])
        narrower = table.without(left_out)
        widths = _widths(narrower, width)
        if widths is not None:
            names = tuple(table.head[column] for column in sorted(left_out) if column not in empty)
            return FittedTable(narrower, widths, names)
    return FittedTable(table, None, ())


def total_width(fitted: FittedTable) -> int:
    """With the gaps between the columns; 0 for what is no table."""
    return _total(fitted.widths) if fitted.widths else 0


def as_list(table: TextTable, width: int) -> str:
    """Row by row, a line for each cell that is not empty, with its head before it: for what is too wide for a table."""
    indent = max((len(name) for name in table.head), default=0) + GAP
    blocks = [
        "\n".join(
            line
            for name, cell in zip(table.head, row, strict=True)
            if cell
            for line in textwrap.wrap(
                cell,
                max(width, indent + 1),
                initial_indent=name.ljust(indent),
                subsequent_indent=" " * indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        )
        for row in table.rows
    ]
    return "\n\n".join(blocks)


def _columns(table: TextTable) -> list[list[str]]:
    return [[name, *(row[column] for row in table.rows)] for column, name in enumerate(table.head)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _widths(table: TextTable, width: int) -> tuple[int, ...] | None:
    """No column narrower than its longest word (a very long one of a sentence may be split); None: they do not fit.

    First sentences become readable, then the others get all that they want, the modest first; sentences get the rest.
    """
    columns = _columns(table)
    natural = [max(map(len, cells)) for cells in columns]
    longest_words = [max((len(word) for cell in cells for word in cell.split()), default=1) for cells in columns]
    now = [
        min(longest, _LONGEST_WORD) if column in table.prose else longest
        for column, longest in enumerate(longest_words)
    ]
    spare = width - _total(now)
    if spare < 0:
        return None
    sentences = sorted(table.prose)
    for column in sentences:
        spare = _grow(now, column, min(natural[column], _READABLE_PROSE), spare)
    others = [column for column in range(len(columns)) if column not in table.prose]
    for column in sorted(others, key=lambda column: (natural[column] - now[column], column)):
        # A half of what it wants would only break its lines elsewhere.
        if natural[column] - now[column] <= spare:
            spare = _grow(now, column, natural[column], spare)
    for column in sentences:
        spare = _grow(now, column, natural[column], spare)
    return tuple(now)


def _grow(widths: list[int], column: int, wanted: int, spare: int) -> int:
    """Gives the column what it wants of what is spare; returns what is left."""
    more = max(0, min(wanted - widths[column], spare))
    widths[column] += more
    return spare - more
