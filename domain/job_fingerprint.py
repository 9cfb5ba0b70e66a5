"""By what recurring jobs are recognised, so that what was measured of one holds for the next (Synergy §3.1).

Rule: the program with the arguments that decide how an iteration goes, the GPUs of a task, and the model. How long a job
trains, with which seed, and where it writes to are left out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from domain.workload import Command, EntryPoint, JobSpecification, PythonCallable

PREFIX = "job-"
IMMATERIAL_OPTIONS = frozenset(
    {
        "checkpoint-every",
        "epochs",
        "iterations",
        "log-dir",
        "max-steps",
        "name",
        "num-epochs",
        "output",
        "output-dir",
        "print-every",
        "run-id",
        "run-name",
        "save-dir",
        "save-every",
        "seed",
        "steps",
    }
)
"""Options of programs that do not change what an iteration needs; `--` stands before them, `_` counts as `-`."""


def job_fingerprint(job: JobSpecification, model: str = "") -> str | None:
    """The name under which a profile of such jobs is kept; None for emulated jobs, which nothing can be measured of."""
    program = _program(job.entry_point)
    if program is None:
        return None
    described = json.dumps([program, job.resources.gpus, model])
    return PREFIX + hashlib.sha256(described.encode()).hexdigest()[:16]


def _program(entry_point: EntryPoint) -> list[str] | None:
    match entry_point:
        case Command(arguments):
            return list(_material(arguments))
        case PythonCallable(target):
            return ["python", target]
        case _:
            return None


def _material(arguments: Iterable[str]) -> Iterable[str]:
    """The arguments without immaterial options and their values."""
    value_follows = False
    for argument in arguments:
        if value_follows and not argument.startswith("-"):
            value_follows = False
            continue
        value_follows = False
        name, given, _ = argument.removeprefix("--").partition("=")
        if argument.startswith("--") and name.replace("_", "-") in IMMATERIAL_OPTIONS:
            value_follows = not given
        else:
            yield argument
