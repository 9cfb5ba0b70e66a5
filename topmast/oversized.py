"""What makes a folder too large to be a working directory, in a sentence with the remedy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_SHOWN = 5
_MOST_OF_IT = 0.8

_REMEDY = (
    "name in .topmastignore what the tasks do not need, or pack another folder: --workdir (or --no-workdir for none) on the"
    " command line, working_directory in Python and in files"
)


class Oversized:
    """A folder whose entries have these sizes, by their paths within it."""

    def __init__(self, root: Path, sizes: Sequence[tuple[str, int]]) -> None:
        self._root = root
        self._total = sum(size for _, size in sizes)
        self._below: dict[str, int] = {}
        """Of every entry, with all that is in it."""
        self._children: dict[str, list[str]] = {}
        for name, size in sizes:
            parts = name.split("/")
            for depth in range(1, len(parts) + 1):
                path = "/".join(parts[:depth])
                if path not in self._below:
                    self._below[path] = 0
                    self._children.setdefault("/".join(parts[: depth - 1]), []).append(path)
                self._below[path] += size

    def too_many_bytes(self, greatest: int) -> str:
        """What to say when it has more bytes than that."""
        largest = ", ".join(f"{path} ({bytes_shown(size)})" for path, size in self.largest())
        return (
            f"the working directory {self._root} has {bytes_shown(self._total)}, and the service takes"
            f" {bytes_shown(greatest)} at most; the largest entries: {largest}; {_REMEDY}"
        )

    def too_many_entries(self, greatest: int, *, all_seen: bool) -> str:
        """What to say when it has more files, links and folders than that."""
        largest = ", ".join(f"{path} ({size:,})" for path, size in self.largest())
        return (
            f"the working directory {self._root} has {'' if all_seen else 'more than '}{self._total:,} files and folders, and the"
            f" service takes {greatest:,} at most; where most are: {largest}; {_REMEDY}"
        )

    def largest(self) -> list[tuple[str, int]]:
        """The few largest entries, largest first. For a folder that is mostly one thing in it stands that one."""
        found = [(path, self._below[path]) for path in map(self._essence, self._children.get("", []))]
        return sorted(found, key=lambda one: (-one[1], one[0]))[:_SHOWN]

    def _essence(self, path: str) -> str:
        while True:
            inner = max(self._children.get(path, []), key=lambda one: (self._below[one], one), default=None)
            if inner is None or self._below[inner] < _MOST_OF_IT * self._below[path]:
                return path
            path = inner


def bytes_shown(size_bytes: int) -> str:
    """So many bytes, for people."""
    size, units = float(size_bytes), ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:.0f} bytes" if units[0] == "bytes" else f"{size:.1f} {units[0]}"
