"""How a task ended, on the disk: for whoever comes when its runner is gone, with all that it knew.

A file of lines of JSON for each task of an attempt. The first says that it was begun. The reaper adds how the main process ended by
itself, the moment it sees it; the runner adds what it reports, before anybody hears it. Every line is on the disk (fsync) before anything else
happens; half a line at the end of the file is none. Everything here waits for files: call it in a thread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from domain.identifiers import JobName
from domain.placement import TaskPlacement
from services.execution.executor import AttemptOrder
from services.execution.runner_messages import RunnerReport, RunnerState
from services.execution.task_paths import TaskPaths, write_whole

_REPORT = TypeAdapter(RunnerReport)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class JournaledTask:
    """What a journal says. `afterwards`: what is to be run when nothing of the task is left, for containers are nobody's children."""

    started_s: float
    afterwards: tuple[str, ...] = ()
    report: RunnerReport | None = None
    """The runner's own."""
    exit_code: int | None = None
    """Of a main process that ended by itself, as its reaper saw it."""
    ended_real_s: float = 0.0

    def end(self, *, all_here: bool) -> RunnerReport | None:
        """How it ended; None when that is not known. `all_here`: what the task has written needs no upload, so that its work is done when
        its main process is. One that was killed says nothing by itself: that may be the doing of what killed its runner."""
        if self.report is not None:
            return self.report
        if not all_here or self.exit_code is None or self.exit_code < 0:
            return None
        return RunnerReport(1, RunnerState.ENDED, self.started_s, self.exit_code, ended_real_s=self.ended_real_s)


@dataclass(frozen=True, slots=True)
class TaskJournal:
    """One task's. Its folder is the service's own: what runs as somebody else cannot write there."""

    file: Path = field()

    @staticmethod
    def of(paths: TaskPaths, order: AttemptOrder, placement: TaskPlacement) -> TaskJournal:
        return TaskJournal(paths.journal(order.key, placement.job, placement.task))

    def begin(self, started_s: float, afterwards: Iterable[str]) -> None:
        """It is about to be started; what another runner of the same task wrote is over. Raises OSError."""
        write_whole(self.file, _line({"started_s": started_s, "afterwards": list(afterwards)}))
        _sync(self.file)
        _sync(self.file.parent)

    def end(self, report: RunnerReport) -> None:
        """The runner is about to report this. Raises OSError."""
        with self.file.open("a", encoding="utf-8") as file:
            # On a line of its own, also after a write that broke off, because the disk was full or its writer was killed.
            file.write("\n" + _line({"report": _REPORT.dump_python(report, mode="json")}))
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> JournaledTask | None:
        """None when it was never begun, or that cannot be read."""
        try:
            lines = self.file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            _log.warning("how a task ended cannot be read", file=str(self.file), error=str(error))
            return None
        found: JournaledTask | None = None
        for line in filter(None, lines):
            found = _with_line(found, line, self.file)
        return found


def journaled_tasks(
    home: Path, order: AttemptOrder, placements: Iterable[TaskPlacement]
) -> dict[tuple[JobName, int], JournaledTask]:
    """Those of these tasks that were begun on a machine with this home."""
    paths = TaskPaths(home)
    read = {(one.job, one.task): TaskJournal.of(paths, order, one).read() for one in placements}
    return {task: journaled for task, journaled in read.items() if journaled is not None}


def _with_line(found: JournaledTask | None, line: str, file: Path) -> JournaledTask | None:
    try:
        said: dict[str, Any] = json.loads(line)
        if "started_s" in said:
            return JournaledTask(float(said["started_s"]), tuple(said["afterwards"]))
        if found is None:
            return None
        if "report" in said:
            report = _REPORT.validate_python(said["report"])
            return JournaledTask(found.started_s, found.afterwards, report, found.exit_code, found.ended_real_s)
        exit_code, ended_real_s = int(said["exit_code"]), float(said["ended_real_s"])
    except (ValueError, TypeError, KeyError, ValidationError) as error:
        _log.warning("a line says nothing of how a task ended", file=str(file), line=line[:200], error=str(error))
        return found
    return JournaledTask(found.started_s, found.afterwards, found.report, exit_code, ended_real_s)


def _line(said: dict[str, object]) -> str:
    return f"{json.dumps(said)}\n"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
