"""Which task this process is: what its cluster manager has put into the environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

_SESSION_OPENED_MARK = "session_opened"
_STOP_SEEN_MARK = "stop_seen"


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """One task of one attempt. `rank` counts the tasks of its job, `local_rank` those on its machine."""

    workload: str
    attempt: int
    job: str
    task: int
    rank: int
    world_size: int
    local_rank: int
    checkpoint_directory: Path
    session_address: str
    task_file: Path | None
    session_token: str = field(default="", repr=False)
    """What proves to the cluster manager that this is a task of the attempt."""
    session_authority: str = ""
    """PEM: whose certificate the cluster manager shows; empty: it is called in plain text."""

    @staticmethod
    def of(variables: Mapping[str, str]) -> TaskEnvironment | None:
        """None outside Topmast (TOPMAST_WORKLOAD is not set). Raises KeyError or ValueError when it is half set."""
        if "TOPMAST_WORKLOAD" not in variables:
            return None
        job = variables["TOPMAST_JOB"]
        task_file = variables.get("TOPMAST_TASK_FILE")
        return TaskEnvironment(
            workload=variables["TOPMAST_WORKLOAD"],
            attempt=int(variables["TOPMAST_ATTEMPT"]),
            job=job,
            task=int(variables["TOPMAST_TASK"]),
            rank=int(variables["RANK"]),
            world_size=int(variables["WORLD_SIZE"]),
            local_rank=int(variables["LOCAL_RANK"]),
            checkpoint_directory=Path(variables["TOPMAST_CHECKPOINT_DIRECTORY"]) / _escaped(job),
            session_address=variables.get("TOPMAST_SESSION_ADDRESS", ""),
            task_file=Path(task_file) if task_file else None,
            session_token=variables.get("TOPMAST_SESSION_TOKEN", ""),
            session_authority=variables.get("TOPMAST_SESSION_AUTHORITY", ""),
        )

    def mark_session_opened(self) -> None:
        """Lets the task's runner know that this program notices when it should stop."""
        self._mark(_SESSION_OPENED_MARK)

    def mark_stop_seen(self) -> None:
        """Lets it know that the program has noticed that it should stop: if it ends now, that is why."""
        self._mark(_STOP_SEEN_MARK)

    def current(self) -> TaskNow:
        """What may have changed since the task was started."""
        try:
            written = json.loads(self.task_file.read_text(encoding="utf-8")) if self.task_file else {}
        except (OSError, ValueError):
            written = {}
        return TaskNow(
            session_address=str(written.get("session_address", self.session_address)),
            rank=int(written.get("rank", self.rank)),
            world_size=int(written.get("world_size", self.world_size)),
            revision=int(written.get("revision", 0)),
        )

    def _mark(self, name: str) -> None:
        if self.task_file is not None and self.task_file.parent.is_dir():
            (self.task_file.parent / name).touch()


def _escaped(name: str) -> str:
    """As the service writes a name as one part of a path: never empty, hidden, `.` or `..`."""
    quoted = quote(name, safe="")
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted or "%"


@dataclass(frozen=True, slots=True)
class TaskNow:
    """Where the cluster manager answers now, how many tasks the job has now, and the rank of this one among them."""

    session_address: str
    rank: int
    world_size: int
    revision: int
    """Grows with each change of the attempt's tasks, CPUs and memory."""
