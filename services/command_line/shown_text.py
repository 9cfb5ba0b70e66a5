"""Text for a terminal that others have written: nothing in it moves the cursor, sets a title, or turns the direction of what follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TAB, _NEW_LINE = 0x09, 0x0A
_DIRECTIONS: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROLS: Final = (*range(0x20), *range(0x7F, 0xA0))

_IN_LINES: Final[Mapping[int, str]] = {
    code: f"\\u{code:04x}" for code in (*_CONTROLS, *_DIRECTIONS) if code not in (_TAB, _NEW_LINE)
}
_IN_CELL: Final[Mapping[int, str]] = {**_IN_LINES, _TAB: " ", _NEW_LINE: " "}


def shown(text: str) -> str:
    """The text with control characters written out (`\\u001b`), which JSON takes for the same; lines stay lines."""
    return text if text.isascii() and text.isprintable() else text.translate(_IN_LINES)


def shown_cell(text: str) -> str:
    """The same of what is in a row of a table: it begins no other row."""
    return text if text.isascii() and text.isprintable() else text.translate(_IN_CELL)
