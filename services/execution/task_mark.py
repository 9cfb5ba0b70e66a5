"""By what the processes of a task are found again when all that watched over them is gone: a control group's name, and variables of
their environment.

Both say the TOPMAST_HOME as well: of two services on a machine none ends what is the other's. Pure.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from domain.identifiers import AttemptNumber, ClusterId, JobName, WorkloadId
from domain.placement import AttemptKey, TaskPlacement
from services.execution.task_paths import TASK_FILE_NAME, TaskPaths

CLUSTER_VARIABLE = "TOPMAST_CLUSTER"
TASK_FILE_VARIABLE = "TOPMAST_TASK_FILE"
_WORKLOAD_VARIABLE, _ATTEMPT_VARIABLE = "TOPMAST_WORKLOAD", "TOPMAST_ATTEMPT"
_JOB_VARIABLE, _TASK_VARIABLE = "TOPMAST_JOB", "TOPMAST_TASK"
_DIGEST_CHARACTERS = 16
_NAMES = 6
"""In the name of a group: of the home, the cluster, the workload, the attempt, the job and the task."""


class TaskMark(NamedTuple):
    """Which task of which attempt."""

    cluster: ClusterId
    key: AttemptKey
    job: JobName
    task: int

    @staticmethod
    def of(key: AttemptKey, placement: TaskPlacement) -> TaskMark:
        return TaskMark(placement.cluster, key, placement.job, placement.task)

    def variables(self, paths: TaskPaths) -> dict[str, str]:
        """Of the environment of its processes."""
        directory = paths.task_directory(self.key, self.job, self.task)
        return {
            CLUSTER_VARIABLE: self.cluster,
            _WORKLOAD_VARIABLE: self.key.workload,
            _ATTEMPT_VARIABLE: str(self.key.attempt),
            _JOB_VARIABLE: self.job,
            _TASK_VARIABLE: str(self.task),
            TASK_FILE_VARIABLE: str(directory / TASK_FILE_NAME),
        }

    def replaces(self, other: TaskMark) -> bool:
        """Whether nothing of the other may run when this one is started: of older attempts of the workload, and of this very task."""
        return other == self or (other.key.workload == self.key.workload and other.key.attempt < self.key.attempt)

    def group_name(self, home: Path) -> str:
        """Of its control group: the name of a folder."""
        names = (self.cluster, self.key.workload, str(self.key.attempt), self.job, str(self.task))
        return quote("/".join([_digest(home), *(quote(name, safe="") for name in names)]), safe="")


def mark_of_group(name: str, home: Path) -> TaskMark | None:
    """The task whose control group has that name; None when it is none of that home."""
    parts = [unquote(part) for part in unquote(name).split("/")]
    if len(parts) != _NAMES or parts[0] != _digest(home):
        return None
    return _mark(*parts[1:])


def mark_of_environment(environment: bytes, home: Path) -> TaskMark | None:
    """The task to which a process with that environment belongs, as /proc has it; None when it is none of that home."""
    # A process may have written over it.
    said = dict(line.partition("=")[::2] for line in environment.decode(errors="surrogateescape").split("\0"))
    names = (CLUSTER_VARIABLE, _WORKLOAD_VARIABLE, _ATTEMPT_VARIABLE, _JOB_VARIABLE, _TASK_VARIABLE)
    if not all(name in said for name in names):
        return None
    mark = _mark(*(said[name] for name in names))
    if mark is None or said.get(TASK_FILE_VARIABLE) != mark.variables(TaskPaths(home))[TASK_FILE_VARIABLE]:
        return None
    return mark


def _mark(cluster: str, workload: str, attempt: str, job: str, task: str) -> TaskMark | None:
    if not (attempt.isdecimal() and task.isdecimal()):
        return None
    key = AttemptKey(WorkloadId(workload), AttemptNumber(int(attempt)))
    return TaskMark(ClusterId(cluster), key, JobName(job), int(task))


def _digest(home: Path) -> str:
    return hashlib.sha256(os.fsencode(home.absolute())).hexdigest()[:_DIGEST_CHARACTERS]
