"""From what a job says it runs to a command line."""

from __future__ import annotations

import sys
from pathlib import Path

from domain.workload import Command, Emulated, EntryPoint, PythonCallable
from topmast.training import run_callable


def arguments_of(entry_point: EntryPoint, python: str = "") -> list[str]:
    """The command line of an entry point; raises ValueError for an emulated one, which has no process.

    `python` is another interpreter than ours, which may not know our modules.
    """
    match entry_point:
        case Command(arguments):
            return list(arguments)
        case PythonCallable(target) if python:
            return [python, "-c", Path(run_callable.__file__).read_text(encoding="utf-8"), target]
        case PythonCallable(target):
            return [sys.executable, "-m", "topmast.training.run_callable", target]
        case Emulated():
            raise ValueError("an emulated job has no process")
