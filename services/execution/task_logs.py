"""Reads what tasks printed, from their log files, or from the store where these are on another machine; follows them while the attempt lives."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from domain.identifiers import AttemptNumber, JobName
from domain.placement import AttemptKey
from services.execution.executor import LogRequest, TaskLogChunk, UnknownAttempt
from services.execution.stored_logs import StoredLog, StoredLogs
from services.execution.task_paths import LAST_BYTES, TaskPaths, last_line, lines_at_end

_CHUNK_BYTES = 65_536
_LOOK_AGAIN_S = 0.2
_LOOK_INTO_STORE_AGAIN_S = 2.0


class _Log(Protocol):
    """What one task has printed, wherever that is."""

    job: JobName
    task: int

    @property
    def size_bytes(self) -> int: ...

    def read(self, start: int, size_bytes: int) -> bytes: ...


@dataclass(slots=True)
class _LocalLog:
    job: JobName
    task: int
    path: Path

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def read(self, start: int, size_bytes: int) -> bytes:
        with self.path.open("rb") as stream:
            stream.seek(start)
            return stream.read(size_bytes)


class TaskLogs:
    """All that this cluster's manager can read."""

    def __init__(self, paths: TaskPaths, store: str) -> None:
        """`store` is the URL of that of logs; empty: there is none."""
        self._paths = paths
        self._store = store
        self._stored: StoredLogs | None = None

    async def read(
        self, request: LogRequest, known: Sequence[AttemptNumber], ended: Callable[[AttemptKey], bool]
    ) -> AsyncIterator[TaskLogChunk]:
        """The output of the tasks asked for, task by task; with `follow`, then whatever is added until the attempt ends.

        `known` are the attempts of the workload that may not have printed yet. Raises UnknownAttempt when there is
        neither a log nor a known attempt, StoreFailed when the store does not answer.
        """
        key = await self._attempt(request, known)
        offsets: dict[tuple[JobName, int], int] = {}
        elsewhere: list[StoredLog] = []
        look_elsewhere_at_s = -math.inf
        while True:
            # Asked before reading: what is printed before the end is read after it.
            last_look = not request.follow or ended(key)
            if self._store and (last_look or time.monotonic() >= look_elsewhere_at_s):
                elsewhere = await asyncio.to_thread(lambda: self._opened().tasks(key))
                look_elsewhere_at_s = time.monotonic() + _LOOK_INTO_STORE_AGAIN_S
            for log in await asyncio.to_thread(self._logs, key, elsewhere):
                task = log.job, log.task
                if not _is_asked_for(log, request):
                    continue
                if task not in offsets:
                    offsets[task] = await asyncio.to_thread(_offset_of_tail, log, request.tail_lines)
                while chunk := await asyncio.to_thread(log.read, offsets[task], _CHUNK_BYTES):
                    offsets[task] += len(chunk)
                    yield TaskLogChunk(key.attempt, log.job, log.task, chunk)
            if last_look:
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    def last_line(self, key: AttemptKey, job: JobName, task: int) -> str:
        """The last line of a task that says anything; empty when there is none. Waits for files. Raises StoreFailed."""
        path = self._paths.log(key, job, task)
        if path.exists() or not self._store:
            return last_line(path)
        for log in self._opened().tasks(key):
            if (log.job, log.task) == (job, task):
                start = max(0, log.size_bytes - LAST_BYTES)
                return "".join(lines_at_end(_exactly(log, start, LAST_BYTES), 1))
        return ""

    async def _attempt(self, request: LogRequest, known: Sequence[AttemptNumber]) -> AttemptKey:
        candidates = {*known, *await asyncio.to_thread(self._paths.logged_attempts, request.workload)}
        if self._store and request.attempt not in candidates:
            candidates |= await asyncio.to_thread(lambda: self._opened().attempts(request.workload))
        number = request.attempt or max(candidates, default=AttemptNumber(0))
        key = AttemptKey(request.workload, number)
        if number not in candidates:
            which = f"attempt {number}" if request.attempt else "an attempt"
            raise UnknownAttempt(key, f"there are no logs of {which} of {request.workload} here")
        return key

    def _logs(self, key: AttemptKey, elsewhere: Sequence[StoredLog]) -> list[_Log]:
        """Of every task that has printed (or could have), sorted by job and task; the file where there is one."""
        logs: dict[tuple[JobName, int], _Log] = {(log.job, log.task): log for log in elsewhere}
        for task in self._paths.logged_tasks(key):
            logs[task.job, task.task] = _LocalLog(task.job, task.task, task.log)
        return [log for _, log in sorted(logs.items())]

    def _opened(self) -> StoredLogs:
        if self._stored is None:
            self._stored = StoredLogs(self._store)
        return self._stored


def _is_asked_for(log: _Log, request: LogRequest) -> bool:
    return (request.job is None or log.job == request.job) and (request.task is None or log.task == request.task)


def _offset_of_tail(log: _Log, lines: int) -> int:
    """Where the last so many lines of a log begin; 0 for all of it."""
    if lines <= 0:
        return 0
    position = size = log.size_bytes
    # The line break at the very end ends the last line, it does not begin another one.
    breaks_wanted, tail = lines, b""
    while position > 0:
        step = min(_CHUNK_BYTES, position)
        position -= step
        tail = _exactly(log, position, step) + tail
        body = tail[:-1] if tail.endswith(b"\n") else tail
        if body.count(b"\n") >= breaks_wanted:
            start = len(body)
            for _ in range(breaks_wanted):
                start = body.rfind(b"\n", 0, start)
            return size - len(tail) + start + 1
    return 0


def _exactly(log: _Log, start: int, size_bytes: int) -> bytes:
    """What a log in pieces gives in several."""
    found = b""
    while len(found) < size_bytes and (more := log.read(start + len(found), size_bytes - len(found))):
        found += more
    return found
