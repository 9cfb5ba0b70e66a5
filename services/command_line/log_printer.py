"""Prints what tasks print: as it comes from one task, in whole lines with the task's name from several."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

from services.command_line.output import note, show_json

if TYPE_CHECKING:
    from topmast import LogChunk, Workload


class LogPrinter:
    """Use it in a `with` statement: at the end it prints the lines that were begun."""

    def __init__(self, *, named: bool, as_json: bool) -> None:
        """With `named` each line begins with its job and task; as JSON it is an object."""
        self._named = named
        self._as_json = as_json
        self._begun: dict[tuple[str, int, str, int], bytes] = {}

    @staticmethod
    def for_workload(workload: Workload, job: str, task: int | None, as_json: bool) -> LogPrinter:
        """Names the tasks when there is more than one to read."""
        tasks = sum(max(one.tasks, one.max_tasks) for one in workload.specification.jobs if not job or one.name == job)
        return LogPrinter(named=tasks > 1 and (task is None or not job), as_json=as_json)

    def print(self, chunk: LogChunk) -> None:
        """Prints what is complete; a line that is not yet waits for its end."""
        if not (self._named or self._as_json):
            _write(chunk.chunk)
            return
        task = (chunk.cluster, chunk.attempt, chunk.job, chunk.task)
        *lines, rest = (self._begun.pop(task, b"") + chunk.chunk).split(b"\n")
        for line in lines:
            self._print_line(task, line)
        if rest:
            self._begun[task] = rest

    def remark(self, sentence: str) -> None:
        """Says something about the log, apart from it, after what was begun of it."""
        self._print_rest()
        note(sentence)

    def _print_line(self, task: tuple[str, int, str, int], line: bytes) -> None:
        cluster, attempt, job, number = task
        if self._as_json:
            text = line.decode(errors="replace")
            show_json({"cluster": cluster, "attempt": attempt, "job": job, "task": number, "line": text})
        else:
            _write(f"[{job}/{number}] ".encode() + line + b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self._print_rest()

    def _print_rest(self) -> None:
        for task, line in self._begun.items():
            self._print_line(task, line)
        self._begun.clear()


def _write(output: bytes) -> None:
    # Bytes, as they were printed: they need not be text.
    sys.stdout.flush()
    sys.stdout.buffer.write(output)
    sys.stdout.buffer.flush()
