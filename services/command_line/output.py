"""What commands print: results on standard output, remarks on standard error.

On a terminal tables have colours and lines; elsewhere they are plain columns that `cut` and `awk` understand. JSON is
one object per line.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from services.command_line.shown_text import shown, shown_cell
from services.command_line.table_fit import FittedTable, as_list, fit, total_width
from services.command_line.table_fit import TextTable as TextTable  # noqa: PLC0414  # commands have what they print from here

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


def is_terminal() -> bool:
    return sys.stdout.isatty()


def show(*tables: TextTable, wide: bool = False) -> None:
    """Prints tables: with colours on a terminal, within its width unless `wide`, else plain, with an empty line between two."""
    if not is_terminal():
        print("\n\n".join(as_shown(table).plain() for table in tables), flush=True)
        return
    from rich.console import Console

    console = Console(highlight=False)
    for table in tables:
        print_table(console, table, wide=wide)


def print_table(console: Any, table: TextTable, *, wide: bool = False) -> None:
    """Prints one table to a console of rich."""
    table = as_shown(table)
    if not table.rows:
        console.print(table.plain(), markup=False)
        return
    fitted = fit(table, None if wide else console.width)
    if table.title:
        console.print(table.title, style="italic", markup=False)
    if fitted.widths is None:
        console.print(as_list(fitted.table, console.width), markup=False, soft_wrap=True)
    else:
        if wide and total_width(fitted) > console.width:
            # It goes on beyond the edge of the terminal, which breaks the lines there, or cuts them.
            console.width = total_width(fitted)
        console.print(rich_table(fitted))
    if fitted.left_out:
        names = ", ".join(name.upper() for name in fitted.left_out)
        console.print(f"not shown at this width: {names}; --wide shows all", style="dim", markup=False)
    console.print()


def as_shown(table: TextTable) -> TextTable:
    """The table with nothing in its cells that a terminal would obey."""
    return dataclasses.replace(table, rows=[[shown_cell(cell) for cell in row] for row in table.rows])


def rich_table(fitted: FittedTable) -> Any:
    """The same for rich."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    widths = fitted.widths or [None] * len(fitted.table.head)
    for column, (name, width) in enumerate(zip(fitted.table.head, widths, strict=True)):
        aligned: Any = "right" if column in fitted.table.right else "left"
        table.add_column(name.upper(), justify=aligned, overflow="fold", width=width)
    for row in fitted.table.rows:
        # Text, not str: what users name their things must not be taken for markup.
        table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    return table


def show_line(text: str) -> None:
    """Prints a line at once, so that a reader at the other end of a pipe has it."""
    print(shown(text), flush=True)


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


def as_mapping(value: object) -> dict[str, object]:
    """The fields of a dataclass, as `as_json` has them."""
    fields = as_json(value)
    if not isinstance(fields, dict):
        raise TypeError(f"{value!r} has no fields")
    return fields


def note(text: str) -> None:
    """A remark for the user, on standard error."""
    print(shown(text), file=sys.stderr, flush=True)


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
