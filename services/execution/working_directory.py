"""The working directory of an attempt on one machine: fetched from the store and unpacked, shared by its tasks there, then removed.

Whoever uses it holds a lock on the file beside it (flock), which the kernel gives back when the process is gone, however that
came about. So anybody can tell what is of no use any more, and removes it: nothing has to be remembered.

`<folder>/<workload>-<attempt>-<machine>/` is the working directory; it has that name once it is whole. Everything here waits for
files: call it in a thread.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from domain.identifiers import MachineId
from domain.placement import AttemptKey
from services.execution.folder_removal import remove_folder
from services.execution.package_entries import contained_entry
from services.execution.task_paths import escaped
from services.storage.package_folder import PackageFolder, PackageNotStored, PackageStoreFailed
from services.storage.stored_files import GivenUp

if "data_filter" not in vars(tarfile):
    # Python before 3.11.4, as Debian 12 has it, cannot filter what it unpacks.
    from backports import tarfile  # type: ignore[no-redef]  # the same, under another name

FOLDER_VARIABLE = "TOPMAST_WORKING_DIRECTORIES"
"""In the environment of a Ray node: where its machines unpack, if not below TOPMAST_HOME."""

_LOCK_SUFFIX = ".lock"
_UNPACKING_PREFIX = ".unpacking-"
_RETRY_S = 0.1
_SHOWN_CHARACTERS = 200
_CHUNK_BYTES = 1 << 20
_OF_THE_PACKAGE = frozenset(
    {
        errno.EACCES,
        errno.EEXIST,
        errno.EFBIG,
        errno.EINVAL,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
    }
)
"""What the system says of names and sizes in a package that no machine can have; the folder around them has just been made."""


@dataclass(frozen=True, slots=True)
class Unprepared:
    """Why an attempt has no working directory on a machine. `machine_lost`: its files would not be there for any program, so that it
    counts as if the machine were lost."""

    sentence: str
    machine_lost: bool


class NotPrepared(Exception):
    """Says why it is not there."""

    def __init__(self, why: Unprepared) -> None:
        self.why = why
        super().__init__(why.sentence)


class WorkingDirectory:
    """One attempt's on one machine, from `prepare` to `release`."""

    def __init__(self, folder: Path, key: AttemptKey, machine: MachineId) -> None:
        name = f"{escaped(key.workload)}-{key.attempt}-{escaped(machine)}"
        self.path = folder / name
        self._folder = folder
        self._lock = -1

    def prepare(self, package: str, store: str, given_up: threading.Event) -> None:
        """The files of the package (none: no file) are there, and stay. Raises NotPrepared, or GivenUp once that event is set."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            remove_unused(self._folder)
            while self._lock < 0:
                self._try_to_hold(package, store, given_up)
        except PackageNotStored as error:
            hint = "the tiers may have different stores: name one for all of them, storage.packages in scheduler.yaml"
            sentence = f"the files of its working directory cannot be fetched: {error}; {hint}"
            raise NotPrepared(Unprepared(sentence, machine_lost=True)) from error
        except PackageStoreFailed as error:
            sentence = f"the files of its working directory cannot be fetched: {error}"
            raise NotPrepared(Unprepared(sentence, machine_lost=True)) from error
        except tarfile.TarError as error:
            sentence = f"the files of its working directory cannot be unpacked: {error}"
            raise NotPrepared(Unprepared(sentence, machine_lost=False)) from error
        except OSError as error:
            sentence = f"its working directory cannot be made in {self._folder}: {error.strerror or error}"
            raise NotPrepared(Unprepared(sentence, machine_lost=True)) from error

    def release(self) -> None:
        """Nothing of this task needs it any more; the last one to say so removes it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        remove_unused(self._folder)

    def _try_to_hold(self, package: str, store: str, given_up: threading.Event) -> None:
        """Holds the lock afterwards, or nothing is there: then it is to be done again."""
        path = self._folder / f"{self.path.name}{_LOCK_SUFFIX}"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Alone, for as long as it takes to unpack: of several tasks one does it.
            if _locked(lock, fcntl.LOCK_EX) and _is_at(lock, path) and not self.path.exists():
                self._unpack(package, store, given_up)
            # Then together with the others. Between the two somebody may have taken it for unused.
            if _locked(lock, fcntl.LOCK_SH) and _is_at(lock, path) and self.path.exists():
                self._lock, lock = lock, -1
            else:
                _give_up_if_asked(given_up, _RETRY_S)
        finally:
            if lock >= 0:
                os.close(lock)

    def _unpack(self, package: str, store: str, given_up: threading.Event) -> None:
        unpacking = self._folder / f"{_UNPACKING_PREFIX}{self.path.name}"
        remove_folder(unpacking)
        unpacking.mkdir()
        if package:
            unpack(PackageFolder(store), package, unpacking, given_up)
        unpacking.rename(self.path)


def unpack(store: PackageFolder, package: str, folder: Path, given_up: threading.Event) -> None:
    """Unpacks a package as it is read. Raises PackageNotStored, PackageStoreFailed (also when what is there has another content),
    tarfile.TarError, OSError, GivenUp."""
    with _reading(store, package) as file:
        reader = _Reader(store, file, given_up)
        with (
            _package_blamed(),
            tarfile.open(fileobj=cast("IO[bytes]", reader), mode="r|", errors="surrogateescape") as tar,
        ):
            tar.extractall(folder, filter=contained_entry)  # noqa: S202 -- with a filter  # nosec B202
        while reader.read(_CHUNK_BYTES):
            pass
    found = reader.digest.hexdigest()
    if found != package:
        raise PackageStoreFailed(f"{package} in {store.url} has been damaged: it has the SHA-256 {found}")


def remove_unused(folder: Path) -> None:
    """Removes every working directory that no process holds."""
    for path in sorted(folder.glob(f"*{_LOCK_SUFFIX}")):
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            if not _locked(lock, fcntl.LOCK_EX) or not _is_at(lock, path):
                continue
            name = path.name.removesuffix(_LOCK_SUFFIX)
            if remove_folder(folder / f"{_UNPACKING_PREFIX}{name}") and remove_folder(folder / name):
                path.unlink()
        finally:
            os.close(lock)


class _Reader:
    """What tarfile reads from: hashes what passes, and stops when nobody waits for it any more."""

    def __init__(self, store: PackageFolder, file: IO[bytes], given_up: threading.Event) -> None:
        self.digest = hashlib.sha256()
        self._store = store
        self._file = file
        self._given_up = given_up

    def read(self, size: int) -> bytes:
        _give_up_if_asked(self._given_up, 0.0)
        content: bytes = self._store.ask(self._file.read, size)
        self.digest.update(content)
        return content


@contextmanager
def _reading(store: PackageFolder, package: str) -> Iterator[IO[bytes]]:
    file = store.open(package)
    try:
        yield file
    finally:
        with suppress(Exception):
            file.close()  # it was only read


@contextmanager
def _package_blamed() -> Iterator[None]:
    """Whatever tarfile stumbles over in a package is a TarError: it would do so on every machine."""
    try:
        yield
    except (ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise tarfile.ReadError(f"no archive is like this: {error}") from error
    except OSError as error:
        if error.errno not in _OF_THE_PACKAGE:
            raise
        raise tarfile.ExtractError(f"{error.strerror}: {str(error.filename)[-_SHOWN_CHARACTERS:]}") from error


def _give_up_if_asked(given_up: threading.Event, wait_s: float) -> None:
    if given_up.wait(wait_s):
        raise GivenUp


def _locked(lock: int, how: int) -> bool:
    """Whether it is ours now, at once."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _is_at(lock: int, path: Path) -> bool:
    """Whether the file that is locked is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False
