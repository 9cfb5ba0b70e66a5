"""Tables as files: each region's storage is a folder (fsspec URL) with a folder for each table, and a file for each partition.

Names that begin with `.topmast-` are the movers' own: no table has such a partition.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Mapping
from typing import Protocol

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from services.data_placement.movers.orders import Partition

OWN_PREFIX = ".topmast-"
CHUNK_BYTES = 1 << 20
DEFAULT_ALGORITHM = "sha256"


class MoverProblem(Exception):
    """Why a task cannot be done, in a sentence."""


class Charge(Protocol):
    """Whoever carries a task out, as its storage sees it."""

    def in_charge(self) -> None:
        """Returns when nobody else can be carrying out the same task: called before each change of what others may see."""
        ...

    def goes_on(self) -> None:
        """The storage has answered."""
        ...


class RegionFolder:
    """The storage of one region."""

    def __init__(self, region: str, url: str, charge: Charge) -> None:
        """Raises MoverProblem for a URL that fsspec, or what is installed beside it, does not know."""
        self.region = region
        self.charge = charge
        try:
            files, root = url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise MoverProblem(f"the storage of region {region}, {url}, cannot be reached: {error}") from error
        self.files: AbstractFileSystem = files
        self._root: str = root

    def path(self, table: str, name: str = "") -> str:
        """Raises MoverProblem for a name that leads out of the folder."""
        if {"", ".", ".."} & {*table.split("/")} or "/" in name:
            raise MoverProblem(f"{name or table} is no name of a file in the storage of region {self.region}")
        folder = posixpath.join(self._root, table)
        return posixpath.join(folder, name) if name else folder

    def partitions(self, table: str) -> list[Partition]:
        """The table's files, by name."""
        return [
            Partition(name, size)
            for name, size in sorted(self._listed(table).items())
            if not name.startswith(OWN_PREFIX)
        ]

    def own_files(self, table: str, migration: int) -> list[str]:
        """What movers wrote to make a copy by this migration."""
        prefixes = (part_name(migration), mark_name(migration))
        return [name for name in sorted(self._listed(table)) if name.startswith(prefixes)]

    def _listed(self, table: str) -> Mapping[str, int]:
        """Sizes of all files of the table's folder, by name."""
        folder = self.path(table)
        self.files.invalidate_cache(folder)
        if not self.files.isdir(folder):
            return {}
        return {
            posixpath.basename(entry["name"]): int(entry["size"] or 0)
            for entry in self.files.ls(folder, detail=True)
            if entry["type"] == "file"
        }

    def size(self, table: str, name: str) -> int | None:
        """None: there is no such file."""
        path = self.path(table, name)
        self.files.invalidate_cache(self.path(table))
        return int(self.files.size(path)) if self.files.exists(path) else None

    def version(self, table: str, name: str) -> str:
        """Another one after each change of the file; empty where there is no such file (any more)."""
        path = self.path(table, name)
        self.files.invalidate_cache(self.path(table))
        try:
            return str(self.files.checksum(path))
        except FileNotFoundError:
            return ""

    def read_text(self, table: str, name: str) -> str:
        """Empty where there is no such file."""
        path = self.path(table, name)
        return str(self.files.cat_file(path).decode()) if self.files.exists(path) else ""

    def write_text(self, table: str, name: str, text: str) -> None:
        self.charge.in_charge()
        self.files.pipe_file(self.path(table, name), text.encode())

    def remove(self, table: str, name: str) -> None:
        """Nothing happens where there is no such file."""
        path = self.path(table, name)
        self.charge.in_charge()
        if self.files.exists(path):
            self.files.rm_file(path)

    def remove_folder_if_empty(self, table: str) -> None:
        folder = self.path(table)
        if self.files.isdir(folder) and not self.files.ls(folder, detail=False):
            self.files.rmdir(folder)

    def rename(self, table: str, old: str, new: str) -> None:
        """In one step where the storage can do that; else the new name has either all of it or does not exist."""
        self.charge.in_charge()
        self.files.mv(self.path(table, old), self.path(table, new))

    def checksum(self, table: str, name: str, algorithm: str = DEFAULT_ALGORITHM) -> str:
        """`algorithm:hexadecimal digits` of what can be read there now."""
        digest = hashlib.new(algorithm)
        with self.files.open(self.path(table, name), "rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
                self.charge.goes_on()
        return f"{algorithm}:{digest.hexdigest()}"


def copy_file(
    source: RegionFolder,
    source_name: str,
    target: RegionFolder,
    target_name: str,
    table: str,
    algorithm: str,
    passed: Callable[[int], None],
) -> tuple[int, str]:
    """Copies a file of the table; returns how many bytes were read, and their checksum. `passed` hears of each chunk."""
    digest = hashlib.new(algorithm)
    read = 0
    target.files.makedirs(target.path(table), exist_ok=True)
    with (
        source.files.open(source.path(table, source_name), "rb") as reader,
        target.files.open(target.path(table, target_name), "wb") as writer,
    ):
        while chunk := reader.read(CHUNK_BYTES):
            writer.write(chunk)
            digest.update(chunk)
            read += len(chunk)
            passed(len(chunk))
            target.charge.goes_on()
    return read, f"{algorithm}:{digest.hexdigest()}"


def part_name(migration: int, token: int | None = None, name: str = "") -> str:
    """Of a file that is being written."""
    beginning = f"{OWN_PREFIX}part-{migration}-"
    return beginning if token is None else f"{beginning}{token}-{name}"


def mark_name(migration: int, name: str = "") -> str:
    """Of the note that says what a partition must be, once it is written."""
    return f"{OWN_PREFIX}mark-{migration}-{name}"
