"""The token with which a tier calls others: a file that is read again when it changes."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path

_OWN: ContextVar[TokenFile | None] = ContextVar("own_token", default=None)


class TokenFile:
    """A file whose first line is a token."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[int, int, str] | None = None

    def token(self) -> str | None:
        """What stands there now; None: there is no such file, or it cannot be read."""
        try:
            found = self._path.stat()
            if self._read is None or self._read[:2] != (found.st_mtime_ns, found.st_ino):
                text = self._path.read_text(encoding="ascii", errors="replace").strip()
                self._read = (found.st_mtime_ns, found.st_ino, text)
        except OSError:
            # It is about to be replaced: what it said last is as good as nothing.
            return None
        return self._read[2] or None


def call_others_with(file: TokenFile) -> None:
    """What this task, and every one that it starts, calls other tiers with: a process may have several tiers, each with its own."""
    _OWN.set(file)


def own_token_file() -> TokenFile | None:
    """None: calls go out without a token."""
    return _OWN.get()
