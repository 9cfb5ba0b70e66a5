"""Copies of a workload's checkpoint directory between a machine and a store: fetched before an attempt, uploaded while it runs.

The tasks that share a folder share what is known of it (`.store/` in the directory), under a lock of the kernel. Everything here
waits for files and the store: call it in a thread.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from domain.placement import AttemptKey
from services.execution.checkpoint_manifest import (
    CONTENTS,
    FENCE,
    MANIFESTS,
    Manifest,
    ManifestName,
    StoredFile,
    checkpoint_of,
    is_of_the_library,
    manifest_names,
    merged,
    newest_checkpoints,
    still_needed,
    to_begin_with,
    unneeded_contents,
)
from services.execution.folder_removal import remove_folder
from services.execution.task_paths import escaped, write_whole
from services.storage.storage_folder import StoreFailed
from services.storage.stored_files import GivenUp, StoredFiles
from topmast.training.checkpoints import found_in, note_elsewhere

_STATE = ".store"
_LOOK_AGAIN_S = 0.1
_NOTE_INTERVAL_S = 2.0
_TRIES = 3

_log = structlog.get_logger(__name__)


class CheckpointMissing(Exception):
    """It is known that something was saved, and nothing is found; says where that was looked for."""


class NewerAttempt(Exception):
    """A newer attempt of the workload has begun: nothing of this one is stored any more."""


class _Changed(Exception):
    """A file has changed, or is gone, while it was copied."""


@dataclass(frozen=True, slots=True)
class _Index:
    """What this folder has in common with the store. `attempt`: the last that it was prepared for; `number`: of its last manifest."""

    folder: str
    attempt: int
    number: int
    manifest: Manifest

    def to_text(self) -> str:
        about = {"folder": self.folder, "attempt": self.attempt, "number": self.number}
        return json.dumps(about | {"manifest": self.manifest.to_text()})

    @staticmethod
    def from_text(text: str) -> _Index:
        read = json.loads(text)
        manifest = Manifest.from_text(read["manifest"])
        return _Index(str(read["folder"]), int(read["attempt"]), int(read["number"]), manifest)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A file as it is on the disk."""

    size_bytes: int
    changed_ns: int


class CheckpointCopies:
    """One attempt's, of one folder, for one of the tasks that share it."""

    def __init__(self, directory: Path, store: str, key: AttemptKey, *, elsewhere: bool, quiet_s: float) -> None:
        """`elsewhere`: the attempt has tasks on other machines, whose checkpoints are noted here. `quiet_s`: a program's own files are
        taken for complete when none has changed for so long."""
        self._directory = directory
        self._store = opened_store(store, key)
        self._attempt = int(key.attempt)
        self._elsewhere = elsewhere
        self._quiet_s = quiet_s
        self._own_files: Mapping[str, _Seen] = {}
        self._own_files_since_s = time.monotonic()
        self._noted: dict[str, ManifestName] = {}
        self._noted_s = -_NOTE_INTERVAL_S

    def prepare(self, told_progress: float, given_up: threading.Event) -> None:
        """The folder has the newest files that are known. With told progress there must be a checkpoint. Raises CheckpointMissing,
        NewerAttempt, StoreFailed, OSError, GivenUp."""
        self._make_folder(self._state)
        with self._held(given_up):
            index = self._read_index()
            if index is not None and index.attempt == self._attempt:
                return
            self._raise_fence()
            fetched = self._fetch_again(index, given_up)
            if told_progress > 0 and not self._progress(self._scan()):
                raise CheckpointMissing(
                    f"it was saved at {told_progress:g}, and there is no checkpoint in {self._store.url} or {self._directory}"
                )
            self._write_index(fetched)
            self._remove_history()

    def look(self, given_up: threading.Event, *, settled: bool = False) -> float:
        """Uploads what has become complete; the progress that is safe in the store. `settled`: the task has ended in order, and its own
        files are complete. While another task of the folder uploads, that is not waited for unless settled.

        Raises NewerAttempt, StoreFailed, OSError, GivenUp.
        """
        self._make_folder(self._state)
        if self._elsewhere and time.monotonic() >= self._noted_s + _NOTE_INTERVAL_S:
            self._note_elsewhere()
            self._noted_s = time.monotonic()
        with self._held(given_up if settled else None) as held:
            index = self._read_index() or _Index(secrets.token_hex(4), self._attempt, 0, Manifest({}, {}))
            if index.attempt > self._attempt:
                raise NewerAttempt
            index = replace(index, attempt=self._attempt)
            for tries_left in reversed(range(_TRIES if held else 0)):
                try:
                    index = self._upload(index, given_up, settled=settled)
                    break
                except (_Changed, FileNotFoundError) as error:
                    _log.debug(
                        "what is copied changes", directory=str(self._directory), error=str(error), left=tries_left
                    )
        return max(index.manifest.progress.values(), default=0.0)

    @property
    def _state(self) -> Path:
        return self._directory / _STATE

    def _make_folder(self, folder: Path) -> None:
        """It is there, in the directory itself: its task may have put a link in the place of a folder, so that we, who may do more than
        it, would write elsewhere. Such a link is of no use, and goes."""
        for place in reversed([folder, *folder.parents]):
            if place != self._directory and place.is_relative_to(self._directory) and place.is_symlink():
                place.unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)

    def _fetch_again(self, index: _Index | None, given_up: threading.Event) -> _Index:
        """Another machine may replace its manifest, and what that names, meanwhile."""
        for _ in range(_TRIES - 1):
            with suppress(FileNotFoundError):
                return self._fetch(index, given_up)
        try:
            return self._fetch(index, given_up)
        except FileNotFoundError as error:
            raise StoreFailed(f"{self._store.url} lacks what it names: {error}") from error

    def _fetch(self, index: _Index | None, given_up: threading.Event) -> _Index:
        names = to_begin_with(manifest_names(self._store.sizes(MANIFESTS)), self._attempt)
        stored_in = names[0].attempt if names else 0
        present = self._scan()
        if index is None:
            index = _Index(secrets.token_hex(4), 0, 0, Manifest({}, {}))
        took_part = index.attempt >= stored_in
        # What this folder has stored itself it has, or has done away with.
        others = [name for name in names if not (took_part and name.folder == index.folder)]
        wanted = merged([self._manifest(name) for name in others])
        self._get({path: file for path, file in wanted.items() if _is_newer(file, present.get(path))}, given_up)
        known = dict(index.manifest.files) if took_part else {}
        if names and not took_part and index.attempt > 0:
            for path in present.keys() - wanted.keys():
                if checkpoint_of(path) is None:
                    (self._directory / path).unlink(missing_ok=True)
        now = self._scan()
        known |= {path: file for path, file in wanted.items() if now.get(path) == _seen(file)}
        stored = {checkpoint for path in known if (checkpoint := checkpoint_of(path)) is not None}
        return _Index(index.folder, self._attempt, 0, Manifest(self._progress(now, stored), known))

    def _get(self, files: Mapping[str, StoredFile], given_up: threading.Event) -> None:
        """A checkpoint appears with all of its files; each of a program's own files as a whole."""
        fetching = self._state / "fetching"
        remove_folder(fetching)
        checkpoints: set[str] = set()
        for path, file in files.items():
            checkpoint = checkpoint_of(path)
            if checkpoint is not None:
                self._make_folder((self._directory / checkpoint).parent)
                if (self._directory / checkpoint).exists():
                    continue
            target = fetching / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if self._store.fetch(file.content, target, given_up) != file.size_bytes:
                raise StoreFailed(f"{file.content} in {self._store.url} has been damaged: it has another size")
            os.utime(target, ns=(file.changed_ns, file.changed_ns))
            if checkpoint is None:
                self._make_folder((self._directory / path).parent)
                target.replace(self._directory / path)
            else:
                checkpoints.add(checkpoint)
        for checkpoint in sorted(checkpoints):
            (fetching / checkpoint).rename(self._directory / checkpoint)
        remove_folder(fetching)

    def _upload(self, index: _Index, given_up: threading.Event, *, settled: bool) -> _Index:
        present = self._scan()
        known = index.manifest.files
        checkpoints = {checkpoint for path in present if (checkpoint := checkpoint_of(path)) is not None}
        stored = {checkpoint for path in known if (checkpoint := checkpoint_of(path)) is not None}
        # An older one that was not stored in time is not worth the upload any more.
        taken = (checkpoints & stored) | newest_checkpoints(checkpoints)
        own = {path: seen for path, seen in present.items() if checkpoint_of(path) is None}
        if not self._are_complete(own, settled=settled):
            own = {path: _seen(file) for path, file in known.items() if checkpoint_of(path) is None}
        kept = {path: file for path, file in known.items() if (checkpoint_of(path) or "") in taken}
        kept |= {path: known[path] for path, seen in own.items() if path in known and _seen(known[path]) == seen}
        fresh = {path: seen for path, seen in own.items() if path not in kept}
        fresh |= {path: seen for path, seen in present.items() if checkpoint_of(path) in taken - stored}
        if not fresh and kept.keys() == known.keys():
            return index
        progress = self._progress(present, taken)
        manifests = self._store.sizes(MANIFESTS)
        ours = [
            name.number
            for name in manifest_names(manifests)
            if (name.attempt, name.folder) == (self._attempt, index.folder)
        ]
        name = ManifestName(self._attempt, index.folder, max([index.number, *ours]) + 1)
        uploaded = self._put(name, fresh, given_up)
        manifest = Manifest(progress, dict(sorted((kept | uploaded).items())))
        if given_up.is_set():
            raise GivenUp
        self._check_fence()
        self._store.write(name.path, manifest.to_text().encode())
        index = _Index(index.folder, self._attempt, name.number, manifest)
        self._write_index(index)
        self._remove_former(index, name, manifests)
        return index

    def _put(self, name: ManifestName, files: Mapping[str, _Seen], given_up: threading.Event) -> dict[str, StoredFile]:
        """Uploads; the training library may remove its old checkpoints meanwhile. Raises _Changed."""
        with self._linked(files) as sources:
            uploaded: dict[str, StoredFile] = {}
            for number, (path, seen) in enumerate(sorted(files.items())):
                content = name.content(number)
                whole = self._store.put(content, sources[path], seen.size_bytes, given_up)
                if not whole or _seen_at(sources[path]) != seen:
                    raise _Changed(path)
                uploaded[path] = StoredFile(content, seen.size_bytes, seen.changed_ns)
            return uploaded

    @contextmanager
    def _linked(self, files: Mapping[str, _Seen]) -> Iterator[Mapping[str, Path]]:
        """Where to read them: those of checkpoints stay there whatever the library does. Raises _Changed when one is being removed."""
        linking = self._state / "uploading"
        remove_folder(linking)
        sources: dict[str, Path] = {}
        for path in files:
            source, link = self._directory / path, linking / path
            sources[path] = source
            if checkpoint_of(path) is not None:
                link.parent.mkdir(parents=True, exist_ok=True)
                # Some file systems have no links, and the kernel may not allow one to a file of somebody else.
                with suppress(OSError):
                    link.hardlink_to(source)
                    sources[path] = link
        present = self._scan()
        if any(present.get(path) != seen for path, seen in files.items()):
            raise _Changed("it is being removed, or written")
        try:
            yield sources
        finally:
            remove_folder(linking)

    def _are_complete(self, own: Mapping[str, _Seen], *, settled: bool) -> bool:
        now_s = time.monotonic()
        if own != self._own_files:
            self._own_files, self._own_files_since_s = own, now_s
        return settled or now_s - self._own_files_since_s >= self._quiet_s

    def _note_elsewhere(self) -> None:
        """What the first tasks of jobs have stored from other machines, for those here that wait for it."""
        index = self._read_index()
        own = index.folder if index is not None else ""
        for name in manifest_names(self._store.sizes(MANIFESTS)):
            if name.attempt == self._attempt and name.folder != own and self._noted.get(name.folder) != name:
                with suppress(FileNotFoundError):
                    manifest = self._manifest(name)
                    for checkpoint in newest_checkpoints(checkpoint_of(path) or "" for path in manifest.files):
                        job, _, called = checkpoint.partition("/")
                        self._make_folder(self._directory / job)
                        note_elsewhere(self._directory / job, called, manifest.progress.get(job, 0.0))
                    self._noted[name.folder] = name

    def _scan(self) -> dict[str, _Seen]:
        """Every file that is worth a copy, by its path."""
        found: dict[str, _Seen] = {}
        for folder, folders, names in os.walk(self._directory):
            place = Path(folder).relative_to(self._directory)
            if place == Path():
                folders[:] = [name for name in folders if name != _STATE]
            for name in names:
                path = (place / name).as_posix()
                file = Path(folder, name)
                with suppress(FileNotFoundError):
                    if not is_of_the_library(path) and file.is_file() and not file.is_symlink():
                        found[path] = _seen_at(file)
        return found

    def _progress(self, present: Mapping[str, _Seen], taken: set[str] | None = None) -> dict[str, float]:
        """Of each job, of its newest checkpoint; `taken`: of these alone."""
        progress: dict[str, float] = {}
        for job in sorted({path.partition("/")[0] for path in present if checkpoint_of(path) is not None}):
            for checkpoint in found_in(self._directory / job):
                if taken is None or f"{job}/{checkpoint.path.name}" in taken:
                    progress[job] = checkpoint.progress
        return progress

    def _manifest(self, name: ManifestName) -> Manifest:
        return read_manifest(self._store, name)

    def _raise_fence(self) -> None:
        self._check_fence()
        self._store.write(FENCE, str(self._attempt).encode())

    def _check_fence(self) -> None:
        with suppress(FileNotFoundError):
            if int(self._store.read(FENCE)) > self._attempt:
                raise NewerAttempt

    def _remove_former(self, index: _Index, name: ManifestName, manifests: Mapping[str, int]) -> None:
        """What the new manifest replaces, and what of an upload that broke off is left; the next one tries again."""
        mark = f"{self._attempt:06d}-{index.folder}"
        needed = {file.content for file in index.manifest.files.values()}
        try:
            for path in manifests:
                if path.startswith(f"{MANIFESTS}/{mark}-") and path != name.path:
                    self._store.remove(path)
            for content in self._store.sizes(f"{CONTENTS}/{mark}"):
                if content not in needed:
                    self._store.remove(content)
        except StoreFailed as error:
            _log.warning("old checkpoints stay in the store", error=str(error))

    def _remove_history(self) -> None:
        """What only attempts long over have needed."""
        try:
            paths = self._store.sizes(MANIFESTS)
            needed = still_needed(manifest_names(paths), self._attempt)
            contents = {file.content for name in needed for file in self._manifest(name).files.values()}
            for path in paths.keys() - {name.path for name in needed}:
                self._store.remove(path)
            for content in unneeded_contents(self._store.sizes(CONTENTS), frozenset(contents), before=self._attempt):
                self._store.remove(content)
        except (StoreFailed, FileNotFoundError) as error:
            _log.warning("old checkpoints stay in the store", error=str(error))

    def _read_index(self) -> _Index | None:
        try:
            return _Index.from_text((self._state / "index.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def _write_index(self, index: _Index) -> None:
        write_whole(self._state / "index.json", index.to_text())

    @contextmanager
    def _held(self, given_up: threading.Event | None) -> Iterator[bool]:
        """The lock of the folder; without an event it is not waited for. Raises GivenUp."""
        lock = os.open(self._state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not (held := _locked(lock)) and given_up is not None:
                if given_up.wait(_LOOK_AGAIN_S):
                    raise GivenUp
            yield held
        finally:
            os.close(lock)


def opened_store(url: str, key: AttemptKey) -> StoredFiles:
    """What the store has of a workload. Raises StoreFailed."""
    return StoredFiles(f"{url.rstrip('/')}/{escaped(key.workload)}", "the store of checkpoints")


def stored_progress(url: str, key: AttemptKey) -> float:
    """The progress of the newest checkpoint that is in the store, of this attempt or an older one; 0 when there is none. Raises StoreFailed."""
    store = opened_store(url, key)
    found = 0.0
    for name in to_begin_with(manifest_names(store.sizes(MANIFESTS)), int(key.attempt)):
        with suppress(FileNotFoundError):
            found = max([found, *read_manifest(store, name).progress.values()])
    return found


def read_manifest(store: StoredFiles, name: ManifestName) -> Manifest:
    """Raises FileNotFoundError, StoreFailed."""
    try:
        return Manifest.from_text(store.read(name.path))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreFailed(f"{name.path} in {store.url} has been damaged: {error}") from error


def _is_newer(file: StoredFile, seen: _Seen | None) -> bool:
    return seen is None or file.changed_ns > seen.changed_ns


def _seen(file: StoredFile) -> _Seen:
    return _Seen(file.size_bytes, file.changed_ns)


def _seen_at(path: Path) -> _Seen:
    about = path.stat()
    return _Seen(about.st_size, about.st_mtime_ns)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
