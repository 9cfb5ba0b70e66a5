"""Files that commands read."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
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


def replayable(said: Path | None) -> Path | None:
    """The file, or a copy of what comes through a pipe: that can be read only once, and by this process alone.

    The copy lies in a folder of this process, under the pipe's own name, and goes when the process ends.
    """
    if said is None or said.is_file() or not said.exists() or said.is_dir():
        return said
    folder = Path(tempfile.mkdtemp(prefix="topmast-input-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = folder / said.name
    with said.open("rb") as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)
    return copy
