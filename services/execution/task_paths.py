"""Where the files of attempts are, below TOPMAST_HOME. All machines of a cluster share it, or checkpoints and logs have a store.

- `checkpoints/<workload>/`: stable for the life of the workload, so that the next attempt finds it; kept, and copied to a store if there is one.
- `logs/<workload>/<attempt>/<job>-<task>.log`: what the task printed; the same.
- `tasks/<workload>/<attempt>/<job>-<task>/`: what the cluster manager and the task tell each other; gone when forgotten.
- `tasks/<workload>/<attempt>/ends/<job>-<task>.jsonl`: how the task ended, for whoever was not there; gone when forgotten.
- `working_directories/`: where each machine unpacks the files that an attempt begins with; gone when it has ended.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from domain.identifiers import AttemptNumber, JobName, WorkloadId
from domain.placement import AttemptKey

ROOT = 0

TASK_FILE_NAME = "task.json"
COMMANDS_FILE_NAME = "commands"
"""How many commands run beside the task that somebody has typed; there is none before the first."""
SESSION_OPENED_MARK = "session_opened"
"""Written by the training library when a session begins."""
STOP_SEEN_MARK = "stop_seen"
"""Written by the training library when it has asked the program to stop."""

_LOG_SUFFIX = ".log"

LAST_BYTES = 8192
"""In so much of a log its last lines are looked for."""


class LoggedTask(NamedTuple):
    """A task that has a log file."""

    job: JobName
    task: int
    log: Path


@dataclass(frozen=True, slots=True)
class TaskPaths:
    """The layout below `home`. Names are escaped: no name of a workload or job can lead out of it."""

    home: Path

    def checkpoint_directory(self, workload: WorkloadId) -> Path:
        return self.home / "checkpoints" / escaped(workload)

    def log(self, key: AttemptKey, job: JobName, task: int) -> Path:
        return self._logs(key.workload) / str(key.attempt) / f"{escaped(job)}-{task}{_LOG_SUFFIX}"

    def attempt_directory(self, key: AttemptKey) -> Path:
        return self.home / "tasks" / escaped(key.workload) / str(key.attempt)

    def task_directory(self, key: AttemptKey, job: JobName, task: int) -> Path:
        return self.attempt_directory(key) / f"{escaped(job)}-{task}"

    def journal(self, key: AttemptKey, job: JobName, task: int) -> Path:
        return self.attempt_directory(key) / "ends" / f"{escaped(job)}-{task}.jsonl"

    def journals(self, workload: WorkloadId) -> list[tuple[AttemptNumber, Path]]:
        """Those of all attempts that are there, by attempt and name."""
        found = (self.home / "tasks" / escaped(workload)).glob("*/ends/*.jsonl")
        attempts = ((path.parent.parent.name, path) for path in found)
        return sorted((AttemptNumber(int(name)), path) for name, path in attempts if name.isdecimal())

    @property
    def working_directories(self) -> Path:
        return self.home / "working_directories"

    def logged_attempts(self, workload: WorkloadId) -> tuple[AttemptNumber, ...]:
        """The attempts of which something is on disk, ascending."""
        directory = self._logs(workload)
        if not directory.is_dir():
            return ()
        return tuple(sorted(AttemptNumber(int(entry.name)) for entry in directory.iterdir() if entry.name.isdigit()))

    def logged_tasks(self, key: AttemptKey) -> tuple[LoggedTask, ...]:
        """The tasks of an attempt that have printed (or could have), sorted by job and task."""
        directory = self._logs(key.workload) / str(key.attempt)
        if not directory.is_dir():
            return ()
        found: list[LoggedTask] = []
        for log in directory.iterdir():
            job, _, task = log.name.removesuffix(_LOG_SUFFIX).rpartition("-")
            if log.suffix == _LOG_SUFFIX and task.isdigit():
                found.append(LoggedTask(JobName(unquote(job)), int(task), log))
        return tuple(sorted(found))

    def _logs(self, workload: WorkloadId) -> Path:
        return self.home / "logs" / escaped(workload)


def escaped(name: str) -> str:
    """The name as one component of a path, or one part of an actor's name: never empty, hidden, `.` or `..`."""
    quoted = quote(name, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted or "%"


def last_line(log: Path, longest: int = 300) -> str:
    """The last line in a log that says anything, cut to so many characters; empty when there is none."""
    return "".join(last_lines(log, 1, longest))


def last_lines(log: Path, count: int, longest: int = 300) -> list[str]:
    """The last lines in a log that say anything, so many at most, each cut to so many characters."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - LAST_BYTES))
            return lines_at_end(stream.read(), count, longest)
    except OSError:
        return []


def lines_at_end(content: bytes, count: int, longest: int = 300) -> list[str]:
    """The same of the end of a log."""
    written = [line.strip() for line in content.decode(errors="replace").splitlines() if line.strip()]
    return [line[:longest] for line in written[-count:]]


def write_whole(path: Path, content: str) -> None:
    """Writes a small file so that a reader sees the old content or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.{os.getpid()}")
    # The folder may be a task's own: a link that waits there under that name is not followed.
    written.unlink(missing_ok=True)
    with open(written, "x", encoding="utf-8") as file:  # noqa: PTH123  # of pathlib's `touch` and `write_text` none refuses what is there
        file.write(content)
        folder = path.parent.stat()
        if os.geteuid() == ROOT and folder.st_uid != ROOT:
            # Of a task that runs as another user, who is to read it.
            os.fchown(file.fileno(), folder.st_uid, folder.st_gid)
    written.replace(path)
