"""Tables as files: each region's storage is a folder (fsspec URL) with a folder for each table, and a file for each partition.

Names that begin with `.topmast-` are the movers' own: no table has such a partition.
"""

from __future__ import annotations

import contextlib
import hashlib
import posixpath
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, TypeVar

from fsspec import AbstractFileSystem
from fsspec.core import url_to_fs

from services.data_placement.movers.orders import Partition
from services.data_placement.movers.storage_failed import StorageFailed
from services.storage.failure_words import shown

OWN_PREFIX = ".topmast-"
CHUNK_BYTES = 1 << 20
DEFAULT_ALGORITHM = "sha256"
_BUCKETED = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Object stores: their files are in buckets, which are not ours to make, and there are no folders to be made."""

_Answer = TypeVar("_Answer")
_Given = ParamSpec("_Given")


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
    """The storage of one region. All that it is asked raises StorageFailed where it does not do it."""

    def __init__(self, region: str, url: str, charge: Charge) -> None:
        """Raises MoverProblem for a URL that fsspec, or what is installed beside it, does not know."""
        self.region = region
        self.charge = charge
        try:
            files, root = url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise MoverProblem(f"the storage of region {region}, {shown(url)}, cannot be reached: {error}") from error
        self.files: AbstractFileSystem = files
        self._url = url
        self._root: str = root
        protocols = {files.protocol} if isinstance(files.protocol, str) else {*files.protocol}
        self._bucket = root.strip("/").partition("/")[0] if protocols & _BUCKETED else ""

    def ask(self, call: Callable[_Given, _Answer], *args: _Given.args, **options: _Given.kwargs) -> _Answer:
        """What the storage answers. That there is no such file is said as it is; every other failure is StorageFailed."""
        try:
            return call(*args, **options)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise StorageFailed(self.region, self._url, error) from error

    @contextmanager
    def opened(self, table: str, name: str, mode: str) -> Iterator[Any]:
        """The file; what it holds at the end is written."""
        file = self.ask(self.files.open, self.path(table, name), mode)
        try:
            yield file
        except BaseException:
            with contextlib.suppress(Exception):
                file.close()  # why it is of no use is being said already
            raise
        self.ask(file.close)

    def require_bucket(self) -> None:
        """Raises MoverProblem where files would have to be in a bucket that nobody has made."""
        if not self._bucket:
            return
        self.files.invalidate_cache()
        try:
            self.ask(self.files.info, self._bucket)
        except FileNotFoundError as error:
            raise MoverProblem(
                f"there is no bucket {self._bucket}, in which region {self.region} is to store tables; make it, or name another"
                f" in data.regions.{self.region}.storage"
            ) from error

    def path(self, table: str, name: str = "") -> str:
        """Raises MoverProblem for a name that leads out of the folder."""
        if {"", ".", ".."} & {*table.split("/")} or name in {".", ".."} or "/" in name or "\0" in table + name:
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
        try:
            entries = self.ask(self.files.ls, folder, detail=True)
        except FileNotFoundError:
            return {}
        # Some tools write a file of the folder's own name, to show that it is there.
        return {
            posixpath.basename(entry["name"]): int(entry["size"] or 0)
            for entry in entries
            if entry["type"] == "file" and entry["name"].rstrip("/") != folder.rstrip("/")
        }

    def size(self, table: str, name: str) -> int | None:
        """None: there is no such file."""
        path = self.path(table, name)
        self.files.invalidate_cache(self.path(table))
        try:
            return int(self.ask(self.files.size, path))
        except FileNotFoundError:
            return None

    def version(self, table: str, name: str) -> str:
        """Another one after each change of the file; empty where there is no such file (any more)."""
        path = self.path(table, name)
        self.files.invalidate_cache(self.path(table))
        try:
            return str(self.ask(self.files.checksum, path))
        except FileNotFoundError:
            return ""

    def read_text(self, table: str, name: str) -> str:
        """Empty where there is no such file."""
        try:
            return str(self.ask(self.files.cat_file, self.path(table, name)).decode())
        except FileNotFoundError:
            return ""

    def write_text(self, table: str, name: str, text: str) -> None:
        self.charge.in_charge()
        self.ask(self.files.pipe_file, self.path(table, name), text.encode())

    def remove(self, table: str, name: str) -> None:
        """Nothing happens where there is no such file."""
        path = self.path(table, name)
        self.charge.in_charge()
        with contextlib.suppress(FileNotFoundError):
            self.ask(self.files.rm_file, path)

    def make_folder(self, table: str) -> None:
        """Where the storage has folders."""
        if not self._bucket:
            self.ask(self.files.makedirs, self.path(table), exist_ok=True)

    def remove_folder_if_empty(self, table: str) -> None:
        if self._bucket:
            return
        folder = self.path(table)
        with contextlib.suppress(FileNotFoundError):
            if not self.ask(self.files.ls, folder, detail=False):
                self.ask(self.files.rmdir, folder)

    def rename(self, table: str, old: str, new: str) -> None:
        """In one step where the storage can do that; else the new name has either all of it or does not exist."""
        self.charge.in_charge()
        before, after = self.path(table, old), self.path(table, new)
        if type(self.files).mv is AbstractFileSystem.mv:
            # That one takes names with *, ? or [ in them for patterns.
            self.ask(self.files.cp_file, before, after)
            self.ask(self.files.rm_file, before)
        else:
            self.ask(self.files.mv, before, after)

    def checksum(self, table: str, name: str, algorithm: str = DEFAULT_ALGORITHM) -> str:
        """`algorithm:hexadecimal digits` of what can be read there now."""
        digest = hashlib.new(algorithm)
        with self.opened(table, name, "rb") as file:
            while chunk := self.ask(file.read, CHUNK_BYTES):
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
    target.make_folder(table)
    with source.opened(table, source_name, "rb") as reader, target.opened(table, target_name, "wb") as writer:
        while chunk := source.ask(reader.read, CHUNK_BYTES):
            target.ask(writer.write, chunk)
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
