"""Reads what tasks printed, from their log files; follows them while the attempt lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from domain.identifiers import AttemptNumber
from domain.placement import AttemptKey
from services.execution.executor import LogRequest, TaskLogChunk, UnknownAttempt
from services.execution.task_paths import LoggedTask, TaskPaths

_CHUNK_BYTES = 65_536
_LOOK_AGAIN_S = 0.2


async def read_task_logs(
    paths: TaskPaths, request: LogRequest, known: Sequence[AttemptNumber], ended: Callable[[AttemptKey], bool]
) -> AsyncIterator[TaskLogChunk]:
    """The output of the tasks asked for, task by task; with `follow`, then whatever is added until the attempt ends.

    `known` are the attempts of the workload that may not have printed yet. Raises UnknownAttempt when there is
    neither a log nor a known attempt.
    """
    candidates = {*known, *await asyncio.to_thread(paths.logged_attempts, request.workload)}
    number = request.attempt or max(candidates, default=AttemptNumber(0))
    key = AttemptKey(request.workload, number)
    if number not in candidates:
        which = f"attempt {number}" if request.attempt else "an attempt"
        raise UnknownAttempt(key, f"there are no logs of {which} of {request.workload} here")
    offsets: dict[Path, int] = {}
    while True:
        # Asked before reading: what is printed before the end is read after it.
        last_look = not request.follow or ended(key)
        for task in await asyncio.to_thread(paths.logged_tasks, key):
            if not _is_asked_for(task, request):
                continue
            if task.log not in offsets:
                offsets[task.log] = await asyncio.to_thread(_offset_of_tail, task.log, request.tail_lines)
            while chunk := await asyncio.to_thread(_read, task.log, offsets[task.log]):
                offsets[task.log] += len(chunk)
                yield TaskLogChunk(number, task.job, task.task, chunk)
        if last_look:
            return
        await asyncio.sleep(_LOOK_AGAIN_S)


def _is_asked_for(task: LoggedTask, request: LogRequest) -> bool:
    return (request.job is None or task.job == request.job) and (request.task is None or task.task == request.task)


def _read(log: Path, offset: int) -> bytes:
    with log.open("rb") as stream:
        stream.seek(offset)
        return stream.read(_CHUNK_BYTES)


def _offset_of_tail(log: Path, lines: int) -> int:
    """Where the last so many lines of a file begin; 0 for all of it."""
    if lines <= 0:
        return 0
    with log.open("rb") as stream:
        position = size = stream.seek(0, 2)
        # The line break at the very end ends the last line, it does not begin another one.
        breaks_wanted, tail = lines, b""
        while position > 0:
            step = min(_CHUNK_BYTES, position)
            position -= step
            stream.seek(position)
            tail = stream.read(step) + tail
            body = tail[:-1] if tail.endswith(b"\n") else tail
            if body.count(b"\n") >= breaks_wanted:
                start = len(body)
                for _ in range(breaks_wanted):
                    start = body.rfind(b"\n", 0, start)
                return size - len(tail) + start + 1
    return 0
