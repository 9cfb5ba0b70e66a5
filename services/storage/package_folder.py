"""Packages as files: `<SHA-256>.tar` in one folder or bucket (fsspec URL). What has that name is whole.

Everything here waits for the storage: call it in a thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
import re
import secrets
import threading
from types import TracebackType
from typing import Any, Self

from services.storage.storage_folder import PART_PREFIX, StorageFolder, StoreFailed


class PackageStoreFailed(StoreFailed):
    """The store of packages is full, refuses, or cannot be reached; says which."""


_is_name = re.compile(r"[A-Za-z0-9_-]{1,128}").fullmatch


class PackageNotStored(Exception):
    """There is no such package in the store; says where that was looked for."""


class PackageMistaken(Exception):
    """What was written has another SHA-256 than its name."""


class PackageFolder(StorageFolder):
    """The store. All that it is asked raises PackageStoreFailed where it does not do it."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "the store of packages", PackageStoreFailed)

    def has(self, package: str) -> bool:
        self.ask(self.files.invalidate_cache, self.root)
        return bool(self.ask(self.files.exists, self.place(package)))

    def write(self, package: str) -> PackageWriter:
        """A package to be written, under another name until it is whole."""
        self.ask(self.files.makedirs, self.root, exist_ok=True)
        return PackageWriter(self, package, posixpath.join(self.root, f"{PART_PREFIX}{secrets.token_hex(8)}"))

    def open(self, package: str) -> Any:  # fsspec's files have no common type
        """The bytes of a package, to be read and closed. Raises PackageNotStored."""
        try:
            return self.ask(self.files.open, self.place(package), "rb")
        except FileNotFoundError as error:
            raise PackageNotStored(f"{package} is not in {self.url}") from error

    def remove(self, package: str) -> None:
        """Nothing happens where there is no such package."""
        with contextlib.suppress(FileNotFoundError):
            self.ask(self.files.rm_file, self.place(package))

    def remove_parts(self) -> int:
        """Removes what was begun and never became whole; returns how many. Nothing may be under way."""
        self.ask(self.files.invalidate_cache, self.root)
        try:
            names = self.ask(self.files.ls, self.root, detail=False)
        except FileNotFoundError:
            return 0
        parts = [name for name in names if posixpath.basename(name).startswith(PART_PREFIX)]
        for part in parts:
            with contextlib.suppress(FileNotFoundError):
                self.ask(self.files.rm_file, part)
        return len(parts)

    def place(self, package: str) -> str:
        """Where it is, for fsspec. Raises PackageNotStored for a name that no package can have."""
        if not _is_name(package):
            raise PackageNotStored(f"{package!r} is no name of a package in {self.url}")
        return posixpath.join(self.root, f"{package}.tar")


class PackageWriter:
    """One package that is being written. What is left without `finish` leaves nothing behind."""

    def __init__(self, folder: PackageFolder, package: str, part: str) -> None:
        self.size_bytes = 0
        self._folder = folder
        self._package = package
        self._part = part
        self._digest = hashlib.sha256()
        self._file = folder.ask(folder.files.open, part, "wb")
        self._whole = False
        self._in_use = threading.Lock()

    def write(self, content: bytes) -> None:
        """Appends."""
        with self._in_use:
            self._folder.ask(self._file.write, content)
            self._digest.update(content)
            self.size_bytes += len(content)

    def finish(self) -> None:
        """The package is there from now on. Raises PackageMistaken."""
        found = self._digest.hexdigest()
        if found != self._package:
            raise PackageMistaken(f"has the SHA-256 {found}")
        self._folder.ask(self._file.close)
        self._folder.rename(self._part, self._folder.place(self._package))
        self._whole = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Removes what was not finished."""
        if self._whole:
            return
        # Whoever was writing may be gone, and its thread still at it.
        with self._in_use:
            # Why it is of no use is being said already.
            with contextlib.suppress(Exception):
                self._file.close()
            with contextlib.suppress(Exception):
                self._folder.files.rm_file(self._part)
