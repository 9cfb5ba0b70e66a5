"""Files that are there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A path to write to, with the same ending; it takes the place of `path` at the end, and goes if anything fails."""
    written = path.with_name(f".part-{path.name}")
    try:
        yield written
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)
