"""From what a job says it runs to a command line."""

from __future__ import annotations

import sys

from domain.workload import Command, Emulated, EntryPoint, PythonCallable


def arguments_of(entry_point: EntryPoint) -> list[str]:
    """The command line of an entry point; raises ValueError for an emulated one, which has no process."""
    match entry_point:
        case Command(arguments):
            return list(arguments)
        case PythonCallable(target):
            return [sys.executable, "-m", "topmast.training.run_callable", target]
        case Emulated():
            raise ValueError("an emulated job has no process")
