"""A folder as a package: one archive whose bytes follow from what is in the folder alone, so that it is stored once.

In it are files, links and folders by name, with the executable bit of files; neither owners nor times. What is ignored
(ignored_files.py), secrets of Topmast itself (own_secrets.py) and what is no file (sockets, pipes, devices) is left out. A link
must stay within the folder.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from topmast.errors import WorkingDirectoryError
from topmast.ignored_files import NEVER_PACKED, IgnoreRules
from topmast.oversized import Oversized
from topmast.own_secrets import OwnSecrets
from topmast.v1 import package_pb2

PART_BYTES = 512 * 2**10

_BLOCK_BYTES = 512
_TIME_S = 315_532_800
"""Of every entry: the first moment of 1980, before which some tools know no time."""
_LOOKED_AT = 4
"""So many times the entries that a package may have are looked at, to say what is too many."""


@dataclass(frozen=True, slots=True)
class PackageLimits:
    """How large a package may be, as the server says."""

    greatest_bytes: int
    greatest_entries: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, link (with its target) or folder; `name` is its path within the folder."""

    name: str
    mode: int
    size_bytes: int = 0
    target: str = ""

    @property
    def packed_bytes(self) -> int:
        """What it takes in the archive, at least."""
        return _BLOCK_BYTES + -(-self.size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES


class Package:
    """A packed folder in a temporary file, which goes when it is closed."""

    def __init__(self, content: IO[bytes], name: str, size_bytes: int) -> None:
        self.name = name
        """The SHA-256 of its bytes."""
        self.size_bytes = size_bytes
        self._content = content

    def parts(self) -> Iterator[package_pb2.PackagePart]:
        """What is sent; no more than one part is in memory."""
        self._content.seek(0)
        first = True
        while content := self._content.read(PART_BYTES):
            yield package_pb2.PackagePart(package=self.name if first else "", content=content)
            first = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._content.close()


DEEPEST = 200
"""So many folders, one in another, are packed."""


def pack_folder(folder: str | os.PathLike[str], limits: PackageLimits) -> Package:
    """The folder as a package, to be closed. Raises WorkingDirectoryError for what is no folder, too large, or cannot be packed."""
    root = Path(os.path.realpath(folder))
    if not root.is_dir():
        raise WorkingDirectoryError(f"there is no folder {os.fspath(folder)} to be a working directory")
    entries = entries_of(root, limits)
    content = tempfile.TemporaryFile()  # noqa: SIM115  # who gets the package closes it
    try:
        with tarfile.open(fileobj=content, mode="w|", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar:
            for entry in entries:
                _add(tar, root, entry)
        size_bytes = content.tell()
        content.seek(0)
        name = hashlib.file_digest(content, "sha256").hexdigest()
    except BaseException:
        content.close()
        raise
    return Package(content, name, size_bytes)


def entries_of(root: Path, limits: PackageLimits) -> Sequence[Entry]:
    """What of the folder is packed, in the order of the names. Raises WorkingDirectoryError where that is too much."""
    secrets = OwnSecrets()
    if secrets.has(f"{root}", root.stat()):
        raise WorkingDirectoryError(
            f"{root} has secrets of a Topmast, which no task may have; pack another folder, or none"
        )
    entries: list[Entry] = []
    packed_bytes, greatest_looked_at = 0, limits.greatest_entries * _LOOKED_AT
    for entry in _walk(root, root, IgnoreRules.above(root), secrets):
        entries.append(entry)
        packed_bytes += entry.packed_bytes
        if len(entries) >= greatest_looked_at:
            break
    if len(entries) > limits.greatest_entries:
        raise WorkingDirectoryError(
            Oversized(root, [(entry.name, 1) for entry in entries]).too_many_entries(
                limits.greatest_entries, all_seen=len(entries) < greatest_looked_at
            )
        )
    if packed_bytes > limits.greatest_bytes:
        sizes = [(entry.name, entry.packed_bytes) for entry in entries]
        raise WorkingDirectoryError(Oversized(root, sizes).too_many_bytes(limits.greatest_bytes))
    return entries


def _walk(root: Path, folder: Path, rules: IgnoreRules, secrets: OwnSecrets) -> Iterator[Entry]:
    rules = rules.within(folder)
    try:
        with os.scandir(folder) as found:
            listed = sorted(found, key=lambda one: os.fsencode(one.name))
    except OSError as error:
        raise _unreadable(folder, error) from error
    for one in listed:
        status = one.stat(follow_symlinks=False)
        is_folder = stat.S_ISDIR(status.st_mode)
        if one.name in NEVER_PACKED or rules.ignores(one.path, folder=is_folder):
            continue
        if secrets.has(one.path, status):
            continue
        name = os.path.relpath(one.path, root)
        if is_folder:
            if name.count(os.sep) >= DEEPEST:
                raise WorkingDirectoryError(
                    f"{root} has folders in more than {DEEPEST} others, below {name.partition(os.sep)[0]}; name that in"
                    " .topmastignore"
                )
            yield Entry(name, stat.S_IFDIR | 0o755)
            yield from _walk(root, Path(one.path), rules, secrets)
        elif stat.S_ISLNK(status.st_mode):
            yield Entry(name, stat.S_IFLNK | 0o777, target=_target_within(root, Path(one.path)))
        elif stat.S_ISREG(status.st_mode):
            executable = bool(status.st_mode & stat.S_IXUSR)
            yield Entry(name, stat.S_IFREG | (0o755 if executable else 0o644), status.st_size)


def _target_within(root: Path, link: Path) -> str:
    """Where the link leads. Raises WorkingDirectoryError when that is not within the folder wherever the folder is."""
    target = link.readlink()
    remedy = (
        "a link must stay within the folder, by a relative path: name it in .topmastignore, or pack what it leads to"
    )
    if target.is_absolute():
        raise WorkingDirectoryError(f"the link {link} leads to the absolute path {target}; {remedy}")
    resolved = os.path.realpath(link.parent / target)
    if os.path.commonpath([root, resolved]) != str(root):
        raise WorkingDirectoryError(f"the link {link} leads out of {root}, to {resolved}; {remedy}")
    return f"{target}"


def _add(tar: tarfile.TarFile, root: Path, entry: Entry) -> None:
    info = tarfile.TarInfo(entry.name)
    info.mode = stat.S_IMODE(entry.mode)
    info.mtime = _TIME_S
    if stat.S_ISDIR(entry.mode):
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    elif stat.S_ISLNK(entry.mode):
        info.type, info.linkname = tarfile.SYMTYPE, entry.target
        tar.addfile(info)
    else:
        path = root / entry.name
        try:
            with path.open("rb") as file:
                # One that grows meanwhile is packed as it was.
                info.size = entry.size_bytes
                tar.addfile(info, file)
        except OSError as error:
            if error.errno is None or isinstance(error, FileNotFoundError):
                # It has become shorter, or is gone.
                raise WorkingDirectoryError(f"{path} has changed while it was packed; try again") from error
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> WorkingDirectoryError:
    return WorkingDirectoryError(
        f"{path} cannot be packed: {error.strerror or error}; name it in .topmastignore if the tasks do not need it"
    )
