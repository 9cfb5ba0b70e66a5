"""Is what the tasks of a job are to run in acceptable? Whether a machine can make it ready only the machine knows."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from domain.runtime_environment import RuntimeEnvironment
from domain.workload import Emulated, JobSpecification
from formats.problems import FieldProblem, in_quotes

GREATEST_FILE_CHARACTERS = 65_536
GREATEST_NAME_CHARACTERS = 1_024

_is_image = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*", re.ASCII).fullmatch
_is_conda = re.compile(r"[A-Za-z0-9_./][^\s:#\x00-\x1f]*").fullmatch
_names_a_file = re.compile(r"(-r|-c|-e|--requirement|--constraint|--editable)(\s|=|$)|\.{0,2}/|file:|.*@\s*file:").match
_is_callable = re.compile(r"[\w.]+:[\w.]+").fullmatch

_ALONE = ("conda", "conda_file", "image")


def check_runtime(job: JobSpecification, path: str) -> list[FieldProblem]:
    """Every problem of the job's `runtime`, which is at `path`."""
    runtime = job.runtime
    if runtime is None:
        return []
    said = [field for field in ("python", "requirements", *_ALONE) if getattr(runtime, field)]
    if isinstance(job.entry_point, Emulated):
        return [FieldProblem(path, "stands beside emulated work, which has no process; remove it")]
    if not said:
        return [FieldProblem(path, "is empty; give python, requirements, conda, conda_file or image, or leave it out")]
    problems: list[FieldProblem] = []
    alone = [field for field in said if field in _ALONE]
    if alone and len(said) > 1:
        beside = " and ".join(field for field in said if field != alone[0])
        problems.append(FieldProblem(f"{path}.{alone[0]}", f"brings all that tasks run in, but stands beside {beside}"))
    for field in said:
        text = getattr(runtime, field)
        greatest = GREATEST_FILE_CHARACTERS if field in {"requirements", "conda_file"} else GREATEST_NAME_CHARACTERS
        if len(text) > greatest:
            described = f"has {len(text)} characters; at most {greatest} are possible"
            problems.append(FieldProblem(f"{path}.{field}", described))
        elif "\0" in text:
            problems.append(FieldProblem(f"{path}.{field}", "has a NUL character; remove it"))
    return problems or _check_each(runtime, path)


def _check_each(runtime: RuntimeEnvironment, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if runtime.python and not PurePosixPath(runtime.python).is_absolute():
        hint = "; a function to run is --function, or `python` of the job" if _is_callable(runtime.python) else ""
        described = (
            f"must be the absolute path of an interpreter on the machines, not {in_quotes(runtime.python)}{hint}"
        )
        problems.append(FieldProblem(f"{path}.python", described))
    if runtime.requirements:
        problems += _check_requirements(runtime.requirements, f"{path}.requirements")
    if runtime.conda and not _is_conda(runtime.conda):
        described = f"must be the name or path of a conda environment, not {in_quotes(runtime.conda)}"
        problems.append(FieldProblem(f"{path}.conda", described))
    if runtime.image and not _is_image(runtime.image):
        described = f"must be a container image, such as python:3.11-slim, not {in_quotes(runtime.image)}"
        problems.append(FieldProblem(f"{path}.image", described))
    return problems


def _check_requirements(text: str, path: str) -> list[FieldProblem]:
    """Only the text itself travels to the machines."""
    for number, line in enumerate(text.splitlines(), 1):
        if _names_a_file(line.strip()):
            described = (
                f"line {number} ({in_quotes(line.strip())}) names another file, which does not travel with it: put what is"
                " in there here, or name the package by a URL"
            )
            return [FieldProblem(path, described)]
    return []
