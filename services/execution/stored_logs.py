"""Logs of tasks in a store: pieces `<workload>/<attempt>/<job>-<task>/<first byte>`, each written once and whole.

Everything here waits for files and the store: call it in a thread.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from domain.identifiers import AttemptNumber, JobName, WorkloadId
from domain.placement import AttemptKey
from services.execution.task_paths import escaped
from services.storage.stored_files import StoredFiles

_GREATEST_PIECE_BYTES = 8 << 20


class LogUpload:
    """Of one task: what it has printed goes to the store piece by piece."""

    def __init__(self, log: Path, store: str, key: AttemptKey, job: JobName, task: int) -> None:
        self._log = log
        self._store = _opened(store)
        self._folder = f"{_folder_of(key)}/{escaped(job)}-{task}"
        self._stored_bytes = 0

    def pending_bytes(self) -> int:
        """What was printed since."""
        try:
            return max(0, self._log.stat().st_size - self._stored_bytes)
        except FileNotFoundError:
            return 0

    def upload(self) -> None:
        """All that was printed is in the store when this returns. Raises StoreFailed, OSError."""
        with suppress(FileNotFoundError), self._log.open("rb") as stream:
            stream.seek(self._stored_bytes)
            while piece := stream.read(_GREATEST_PIECE_BYTES):
                self._store.write(f"{self._folder}/{self._stored_bytes:020d}", piece)
                self._stored_bytes += len(piece)


class StoredLog:
    """Of one task, as far as it is in the store by now."""

    def __init__(self, store: StoredFiles, job: JobName, task: int, pieces: dict[int, tuple[str, int]]) -> None:
        """`pieces`: path and bytes of each, by its first byte."""
        self.job = job
        self.task = task
        self.size_bytes = 0
        """Up to the first piece that is missing."""
        self._store = store
        # What has run for weeks has tens of thousands: they are gone through once, and not for each read.
        self._starts: list[int] = []
        self._paths: list[str] = []
        while (piece := pieces.get(self.size_bytes)) is not None and piece[1] > 0:
            self._starts.append(self.size_bytes)
            self._paths.append(piece[0])
            self.size_bytes += piece[1]

    def read(self, start: int, size_bytes: int) -> bytes:
        """So many bytes from there at most, some at least if there are any. Raises StoreFailed."""
        if start >= self.size_bytes:
            return b""
        place = bisect_right(self._starts, start) - 1
        first, path = self._starts[place], self._paths[place]
        return self._store.read(path, start - first, start - first + size_bytes)


class StoredLogs:
    """All in one store. Every question raises StoreFailed."""

    def __init__(self, url: str) -> None:
        self._store = _opened(url)

    def attempts(self, workload: WorkloadId) -> set[AttemptNumber]:
        """Those of which something is there."""
        parts = [PurePosixPath(path).parts for path in self._store.sizes(escaped(workload))]
        return {AttemptNumber(int(part[1])) for part in parts if len(part) > 1 and part[1].isdigit()}

    def tasks(self, key: AttemptKey) -> list[StoredLog]:
        """The tasks of an attempt of which something is there, by job and task."""
        found: dict[tuple[JobName, int], dict[int, tuple[str, int]]] = {}
        for path, size_bytes in self._store.sizes(_folder_of(key)).items():
            piece = PurePosixPath(path)
            job, _, task = piece.parent.name.rpartition("-")
            if task.isdigit() and piece.name.isdigit():
                found.setdefault((JobName(unquote(job)), int(task)), {})[int(piece.name)] = path, size_bytes
        return [StoredLog(self._store, job, task, pieces) for (job, task), pieces in sorted(found.items())]


def _opened(url: str) -> StoredFiles:
    return StoredFiles(url, "the store of logs")


def _folder_of(key: AttemptKey) -> str:
    return f"{escaped(key.workload)}/{key.attempt}"
