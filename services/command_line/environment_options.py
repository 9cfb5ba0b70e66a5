"""What a workload's tasks run in, as options of `topmast run`, and the files that workload files name."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

import typer

from services.command_line.files import STANDARD_INPUT, read_input

if TYPE_CHECKING:
    from topmast import RuntimeEnvironment

_is_function = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*").fullmatch
_YAML = (".yaml", ".yml")


def _interpreter(said: str) -> str:
    """Its absolute path; a name alone is looked up here."""
    if _is_function(said):
        raise typer.BadParameter(
            f"'{said}' looks like a function; that is --function {said}. --python is the path of an interpreter",
            param_hint="--python",
        )
    if not said or "/" in said:
        # A link is kept: it says which environment the interpreter is of.
        return os.path.abspath(said) if said else ""  # noqa: PTH100 -- resolve() follows links
    found = shutil.which(said)
    if found is None:
        raise typer.BadParameter(f"there is no program {said} in PATH; give the path of one", param_hint="--python")
    return found


EnvironmentFileOption: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--env-file",
        metavar="FILE",
        help="Variables for the tasks, one NAME=VALUE a line; --env wins. May be repeated.",
        show_default=False,
    ),
]
PythonOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--python",
        metavar="PATH",
        callback=_interpreter,
        help="The interpreter that the tasks run with.",
        show_default=False,
    ),
]
RequirementsOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--requirements",
        metavar="FILE",
        help="Packages for the tasks, as pip has them: its content travels with the workload.",
        show_default=False,
    ),
]
CondaOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--conda",
        metavar="ENV",
        help="A conda environment of the machines, or a file (.yaml) of which one is made.",
        show_default=False,
    ),
]
ImageOption: TypeAlias = Annotated[
    str,
    typer.Option("--image", help="A container image, where machines have Docker or Podman.", show_default=False),
]


def runtime_of_options(python: str, requirements: Path | None, conda: str, image: str) -> RuntimeEnvironment | None:
    """What the options ask for; None when none of them was given."""
    from topmast import RuntimeEnvironment

    if not (python or requirements or conda or image):
        return None
    from_file = conda.endswith(_YAML)
    return RuntimeEnvironment(
        python=python,
        requirements="" if requirements is None else read_input(requirements)[0] or "\n",
        conda="" if from_file else conda,
        conda_file=read_input(Path(conda))[0] if from_file else "",
        image=image,
    )


def variables_of_options(files: Sequence[Path], said: Mapping[str, str]) -> dict[str, str]:
    """Those of the files, in their order, and those that were said, which win."""
    from topmast import read_environment_file

    variables: dict[str, str] = {}
    for file in files:
        try:
            variables |= read_environment_file("/dev/stdin" if file == STANDARD_INPUT else file)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--env-file") from error
    return {**variables, **said}


def with_named_files(folder: Path, document: object, source: str) -> object:
    """The document of a workload with the content of the files that it names, which are looked for in the folder.

    Of jobs: `environment_file`, and of their `runtime` `requirements_file`, and `conda_file` where that is a name and not a
    content. Raises FormatError.
    """
    if not isinstance(document, dict) or not isinstance(document.get("jobs"), list):
        return document
    jobs = [_job_with_files(folder, job, f"jobs[{index}]", source) for index, job in enumerate(document["jobs"])]
    return document | {"jobs": jobs}


def _job_with_files(folder: Path, job: object, path: str, source: str) -> object:
    if not isinstance(job, dict):
        return job
    found: dict[object, object] = dict(job)
    if isinstance(found.get("environment_file"), str):
        found["environment"] = _variables(folder / str(found.pop("environment_file")), found, path, source)
    runtime = found.get("runtime")
    if isinstance(runtime, dict):
        found["runtime"] = _runtime_with_files(folder, runtime, f"{path}.runtime", source)
    return found


def _variables(file: Path, job: Mapping[object, object], path: str, source: str) -> object:
    from formats.problems import FieldProblem, FormatError
    from topmast import read_environment_file

    own = job.get("environment", {})
    if not isinstance(own, dict):
        return own
    try:
        return read_environment_file(file) | cast("dict[str, str]", own)
    except OSError as error:
        problem = FieldProblem(f"{path}.environment_file", f"{file} cannot be read: {error.strerror}")
        raise FormatError(source, [problem]) from error
    except ValueError as error:
        raise FormatError(source, [FieldProblem(f"{path}.environment_file", str(error))]) from error


def _runtime_with_files(folder: Path, runtime: Mapping[object, object], path: str, source: str) -> object:
    found = dict(runtime)
    if isinstance(found.get("requirements_file"), str):
        if "requirements" in found:
            raise _refused(source, f"{path}.requirements_file", "stands beside requirements; keep one of them")
        found["requirements"] = _content(
            folder, str(found.pop("requirements_file")), f"{path}.requirements_file", source
        )
    conda_file = found.get("conda_file")
    if isinstance(conda_file, str) and conda_file.endswith(_YAML) and "\n" not in conda_file:
        found["conda_file"] = _content(folder, conda_file, f"{path}.conda_file", source)
    return found


def _content(folder: Path, name: str, field: str, source: str) -> str:
    try:
        return (folder / name).read_text(encoding="utf-8")
    except OSError as error:
        raise _refused(source, field, f"{folder / name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _refused(source, field, f"{folder / name} is not UTF-8 text") from error


def _refused(source: str, field: str, description: str) -> Exception:
    from formats.problems import FieldProblem, FormatError

    return FormatError(source, [FieldProblem(field, description)])
