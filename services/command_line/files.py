"""Files that commands read."""

from __future__ import annotations

import sys
from pathlib import Path

STANDARD_INPUT = Path("-")


def read_input(file: Path) -> tuple[str, str]:
    """The text of a file, or of standard input for `-`, and its name in messages.

    Raises FormatError when it cannot be read.
    """
    from formats.problems import FieldProblem, FormatError
    from formats.text_stream import read_text

    if file != STANDARD_INPUT:
        return read_text(file), str(file)
    try:
        return sys.stdin.read(), "standard input"
    except UnicodeDecodeError as error:
        raise FormatError("standard input", [FieldProblem("", "is not UTF-8 text")]) from error
