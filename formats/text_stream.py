"""Text files as streams: UTF-8 with `\\n` line ends; gzip is recognised by its first bytes, and written by the name."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from formats.problems import FieldProblem, FormatError, UnreadableInput


def read_text(path: Path) -> str:
    """The whole text of a file; raises FormatError when it is not UTF-8 or damaged, UnreadableInput when it is not there."""
    return "".join(line for _, line in read_lines(path))


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a file, from 1, as a stream; raises FormatError as `read_text` does."""
    line_number = 0
    try:
        with path.open("rb") as raw:
            stream = gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
            with io.TextIOWrapper(stream, encoding="utf-8-sig") as lines:
                for line_number, line in enumerate(lines, 1):
                    yield line_number, line
    except OSError as error:
        problem = FieldProblem("", f"cannot be read: {error.strerror or error}")
        raise UnreadableInput(str(path), [problem]) from error
    except UnicodeDecodeError as error:
        problem = FieldProblem(f"after line {line_number}", "is not UTF-8 text; save it as UTF-8")
        raise FormatError(str(path), [problem]) from error
    except (EOFError, zlib.error) as error:
        problem = FieldProblem(f"after line {line_number}", f"is damaged or cut short: {error}")
        raise FormatError(str(path), [problem]) from error


@contextmanager
def write_text_stream(path: Path) -> Iterator[TextIO]:
    """A stream into a new file, closed at the end; packed when the name ends in `.gz`.

    The same text gives the same bytes: no name and no time stamp stand in the gzip header.
    """
    with path.open("wb") as raw:
        if path.suffix == ".gz":
            with (
                gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as packed,
                io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as stream,
            ):
                yield stream
        else:
            with io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as stream:
                yield stream
