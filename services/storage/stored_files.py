"""Files by their path within one folder or bucket (fsspec URL).

Everything here waits for the storage: call it in a thread.
"""

from __future__ import annotations

import contextlib
import posixpath
import secrets
import threading
from pathlib import Path
from typing import Any

from services.storage.storage_folder import PART_PREFIX, StorageFolder, StoreFailed

_CHUNK_BYTES = 1 << 20


class GivenUp(Exception):
    """Nobody waits for it any more."""


class StoredFiles(StorageFolder):
    """All that it is asked raises StoreFailed where the storage does not do it."""

    def sizes(self, folder: str = "") -> dict[str, int]:
        """The bytes of every file in a folder and in those below it, by path; none where there is no such folder."""
        try:
            found: dict[str, dict[str, Any]] = self.ask(self.files.find, self._place(folder), detail=True)
        except FileNotFoundError:
            return {}
        root = self.root.rstrip("/") + "/"
        named = {place.removeprefix(root): int(about["size"] or 0) for place, about in sorted(found.items())}
        return {path: size for path, size in named.items() if not posixpath.basename(path).startswith(PART_PREFIX)}

    def read(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        """Some of a file, or all. Raises FileNotFoundError."""
        return bytes(self.ask(self.files.cat_file, self._place(path), start=start, end=end))

    def write(self, path: str, content: bytes) -> None:
        """A small file: it has this content from now on, or what it had before."""
        place = self._place(path)
        if not self.renames:
            # Object stores show what is whole.
            self.ask_to_write(self.files.pipe_file, place, content)
            return
        self.ask_to_write(self.files.makedirs, posixpath.dirname(place), exist_ok=True)
        part = posixpath.join(posixpath.dirname(place), f"{PART_PREFIX}{secrets.token_hex(8)}")
        try:
            self.ask_to_write(self.files.pipe_file, part, content)
            self.rename(part, place)
        except BaseException:
            # Why it is of no use is being said already.
            with contextlib.suppress(Exception):
                self.files.rm_file(part)
            raise

    def put(self, path: str, source: Path, size_bytes: int, given_up: threading.Event) -> bool:
        """Copies a file of this machine there; whether it had that size. It may be seen before it is whole. Raises OSError, GivenUp."""
        place = self._place(path)
        self.ask_to_write(self.files.makedirs, posixpath.dirname(place), exist_ok=True)
        put_bytes = 0
        with source.open("rb") as reading:
            file = self.ask_to_write(self.files.open, place, "wb")
            try:
                # One that grows all the time is not followed.
                while put_bytes <= size_bytes and (chunk := reading.read(_CHUNK_BYTES)):
                    _stop_if(given_up)
                    self.ask_to_write(file.write, chunk)
                    put_bytes += len(chunk)
            except BaseException:
                with contextlib.suppress(Exception):
                    file.close()
                raise
            self.ask_to_write(file.close)
        return put_bytes == size_bytes

    def fetch(self, path: str, target: Path, given_up: threading.Event) -> int:
        """Copies a file from there; returns its bytes. Raises FileNotFoundError, OSError, GivenUp."""
        size_bytes = 0
        file = self.ask(self.files.open, self._place(path), "rb")
        try:
            with target.open("wb") as writing:
                while chunk := self.ask(file.read, _CHUNK_BYTES):
                    _stop_if(given_up)
                    size_bytes += writing.write(chunk)
        finally:
            with contextlib.suppress(Exception):
                file.close()  # it was only read
        return size_bytes

    def remove(self, path: str) -> None:
        """Nothing happens where there is no such file."""
        with contextlib.suppress(FileNotFoundError):
            self.ask(self.files.rm_file, self._place(path))

    def _place(self, path: str) -> str:
        """Raises StoreFailed for a path that leads out of the folder: it may come from what somebody has stored there."""
        if path and ({"", ".", ".."} & {*path.split("/")} or "\0" in path):
            raise StoreFailed(f"{path!r} is no path of a file in {self.url}")
        return posixpath.join(self.root, path) if path else str(self.root)


def _stop_if(given_up: threading.Event) -> None:
    if given_up.is_set():
        raise GivenUp
