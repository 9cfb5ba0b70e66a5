"""What commands print: results on standard output, remarks on standard error.

On a terminal tables have colours and lines; elsewhere they are plain columns that `cut` and `awk` understand. JSON is
one object per line.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Styles: TypeAlias = Mapping[str, str]

STATE_STYLES: Styles = {
    "RUNNING": "green",
    "COMPLETED": "dim green",
    "PENDING": "yellow",
    "WAITING": "yellow",
    "AWAITING_DATA": "yellow",
    "DISPATCHED": "cyan",
    "PREEMPTING": "magenta",
    "FAILED": "bold red",
    "CANCELLED": "dim",
    "alive": "green",
    "dead": "bold red",
}
"""How words that stand alone in a cell are shown on a terminal."""

encode_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""One line, as in the event log."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Rows of text under a head; the columns in `right` are aligned to the right. `title` is for terminals."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()

    def plain(self) -> str:
        """Columns with two spaces between them, under a head in capitals; "-" where there is nothing."""
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

    def rich(self) -> Any:
        """The same for rich."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=self.title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for column, name in enumerate(self.head):
            table.add_column(name, justify="right" if column in self.right else "left", overflow="fold")
        for row in self.rows:
            # Text, not str: what users name their things must not be taken for markup.
            table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
        return table


def is_terminal() -> bool:
    return sys.stdout.isatty()


def show(*tables: TextTable) -> None:
    """Prints tables: with lines and colours on a terminal, else plain, with an empty line between two."""
    if not is_terminal():
        print("\n\n".join(table.plain() for table in tables), flush=True)
        return
    from rich.console import Console

    console = Console(highlight=False)
    for table in tables:
        console.print(table.rich())


def show_line(text: str) -> None:
    """Prints a line at once, so that a reader at the other end of a pipe has it."""
    print(text, flush=True)


def show_json(value: object) -> None:
    """Prints a value (dataclasses as objects) as one line of JSON."""
    show_line(encode_json(as_json(value)))


def as_json(value: object) -> object:
    """Dataclasses become objects with the names of their fields, in their order; everything else stays."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {name: as_json(element) for name, element in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(element) for element in value]
    return value


def note(text: str) -> None:
    """A remark for the user, on standard error."""
    print(text, file=sys.stderr, flush=True)


class StageDisplay:
    """Says what a command is busy with: a spinner on a terminal, a line per stage elsewhere."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._status: Any = None

    def __enter__(self) -> Callable[[str], None]:
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True, highlight=False).status(f"{self._what} ...")
            self._status.start()
        return self.say

    def say(self, stage: str) -> None:
        if self._status is not None:
            self._status.update(f"{self._what}: {stage} ...")
        else:
            note(f"{self._what}: {stage}")

    def __exit__(self, *_failure: object) -> None:
        if self._status is not None:
            self._status.stop()
