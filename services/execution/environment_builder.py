"""Makes a runtime environment on this machine: `python -m services.execution.environment_builder`, its task as argument.

What it prints goes into the log of the task that needs the environment. It ends with 1 where the environment cannot be made,
and its last line says why. Who else needs the same one waits for it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from domain.runtime_environment import RuntimeEnvironment
from services.execution.environment_cache import EnvironmentPlace, trim
from services.execution.prepared_environment import PreparedEnvironment

_ENGINES = ("docker", "podman")
_CONDA_PROGRAMS = ("conda", "mamba", "micromamba")
_OF_SHELLS = frozenset({"PWD", "OLDPWD", "SHLVL", "_"})
"""Each shell sets these itself."""
_ASK_WHETHER_PYTHON = "print(6 * 7)"
_ASK_SITE = "import json, site; print(json.dumps(site.getsitepackages()))"


@dataclass(frozen=True, slots=True)
class EnvironmentTask:
    """What to make, and where."""

    runtime: RuntimeEnvironment
    folder: Path


class CannotBuild(Exception):
    """Why this machine cannot make the environment."""


def build(task: EnvironmentTask) -> None:
    """Makes it unless it is there; raises CannotBuild."""
    place = EnvironmentPlace(task.folder)
    with place.making() as to_be_made:
        if not to_be_made:
            return
        place.clear()
        place.folder.mkdir(parents=True)
        try:
            place.finish(_made(task.runtime, place.folder))
        except BaseException:
            place.clear()
            raise
    trim(place.folder.parent, keep=place.folder.name)


def _made(runtime: RuntimeEnvironment, folder: Path) -> PreparedEnvironment:
    if runtime.image:
        return _image(runtime.image)
    if runtime.conda:
        return _conda(_conda_program(), _conda_prefix(runtime.conda))
    if runtime.conda_file:
        return _conda_from_file(runtime.conda_file, folder)
    python = _interpreter(runtime.python)
    return (
        _virtual_environment(python, runtime.requirements, folder) if runtime.requirements else _shims(python, folder)
    )


# ---------------------------------------------------------------- Python


def _interpreter(said: str) -> str:
    """The interpreter; raises CannotBuild when this machine has none there."""
    python = said or sys.executable
    if not (Path(python).is_file() and os.access(python, os.X_OK)):
        raise CannotBuild(f"there is no interpreter {python} on this machine")
    asked = subprocess.run(
        [python, "-I", "-c", _ASK_WHETHER_PYTHON],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    if asked.stdout.strip() != b"42":
        raise CannotBuild(f"{python} is no Python interpreter that runs here")
    return python


def _shims(python: str, folder: Path) -> PreparedEnvironment:
    """`python` and `python3` are that interpreter, whatever its own name is. A link would hide which environment it is of."""
    programs = folder / "bin"
    programs.mkdir()
    for name in ("python", "python3"):
        shim = programs / name
        shim.write_text(f'#!/bin/sh\nexec {_quoted(python)} "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
    return PreparedEnvironment(python=python, path=(str(programs), str(Path(python).parent)))


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def _virtual_environment(python: str, requirements: str, folder: Path) -> PreparedEnvironment:
    """The packages come on top of those that the interpreter has."""
    environment = folder / "venv"
    listed = folder / "requirements.txt"
    listed.write_text(requirements, encoding="utf-8")
    without_pip = ["--system-site-packages", "--without-pip"]
    _run([python, "-m", "venv", *without_pip, str(environment)], f"{python} cannot make virtual environments")
    _add_packages_of(python, environment)
    inside = str(environment / "bin" / "python")
    if _uv_will_do(python):
        installer = ["uv", "pip", "install", "--python", inside]
    else:
        installer = [
            _with_pip(python),
            "-m",
            "pip",
            "--python",
            inside,
            "install",
            "--no-input",
            "--progress-bar",
            "off",
        ]
    _run([*installer, "--requirement", str(listed)], "")
    return PreparedEnvironment(
        python=inside, path=(str(environment / "bin"),), variables={"VIRTUAL_ENV": str(environment)}
    )


def _add_packages_of(python: str, environment: Path) -> None:
    """An interpreter that is itself of a virtual environment would leave its packages out."""
    folders = json.loads(_output([python, "-I", "-c", _ASK_SITE]))
    own = next(environment.glob("lib/python*/site-packages"))
    lines = [f"import site; site.addsitedir({folder!r})\n" for folder in folders]
    (own / "_interpreter_packages.pth").write_text("".join(lines), encoding="utf-8")


def _uv_will_do(python: str) -> bool:
    """uv is faster, but reads none of pip's settings: where there are any, it would look in the wrong places."""
    if shutil.which("uv") is None:
        return False
    configured = subprocess.run(
        [_with_pip(python), "-m", "pip", "config", "list"], env=_environment(), capture_output=True, check=False
    )
    return configured.returncode != 0 or not configured.stdout.strip()


def _with_pip(python: str) -> str:
    """An interpreter that has pip: this one, or that of the service."""
    for candidate in (python, sys.executable):
        asked = subprocess.run(
            [candidate, "-m", "pip", "--version"], env=_environment(), capture_output=True, check=False
        )
        if asked.returncode == 0:
            return candidate
    raise CannotBuild(f"neither {python} nor {sys.executable} has pip, and there is no uv")


# ---------------------------------------------------------------- conda


def _conda_program() -> str:
    said = os.environ.get("CONDA_EXE") or os.environ.get("MAMBA_EXE")
    found = said or next(filter(None, map(shutil.which, _CONDA_PROGRAMS)), None)
    if found is None:
        raise CannotBuild(f"this machine has no conda: none of {', '.join(_CONDA_PROGRAMS)} is in PATH")
    return found


def _conda_prefix(name: str) -> str:
    if "/" in name:
        if not Path(name).is_dir():
            raise CannotBuild(f"there is no conda environment {name} on this machine")
        return name
    prefixes = json.loads(_output([_conda_program(), "env", "list", "--json"]))["envs"]
    # The first one is the base.
    by_name = {"base": prefixes[0]} if prefixes else {}
    by_name |= {Path(prefix).name: prefix for prefix in prefixes[1:]}
    if name not in by_name:
        known = ", ".join(sorted(by_name)) or "none"
        raise CannotBuild(f"there is no conda environment {name} on this machine; it has: {known}")
    return str(by_name[name])


def _conda_from_file(content: str, folder: Path) -> PreparedEnvironment:
    program, described = _conda_program(), folder / "environment.yaml"
    described.write_text(content, encoding="utf-8")
    prefix = str(folder / "conda")
    making = ["create", "--yes"] if Path(program).name == "micromamba" else ["env", "create"]
    _run([program, *making, "--prefix", prefix, "--file", str(described)], "")
    return _conda(program, prefix)


def _conda(program: str, prefix: str) -> PreparedEnvironment:
    """The variables are those with which it is activated."""
    before = _environment()
    option = "-p" if Path(program).name == "micromamba" else "--prefix"
    activated = dict(
        line.partition("=")[::2] for line in _output([program, "run", option, prefix, "env", "-0"]).split("\0") if line
    )
    changed = {name: text for name, text in activated.items() if before.get(name) != text and name not in _OF_SHELLS}
    path = changed.pop("PATH", "").removesuffix(before["PATH"]).strip(":")
    return PreparedEnvironment(
        python=f"{prefix}/bin/python", path=tuple(path.split(":")) if path else (f"{prefix}/bin",), variables=changed
    )


# ---------------------------------------------------------------- containers


def _image(image: str) -> PreparedEnvironment:
    engine = next(filter(None, map(shutil.which, _ENGINES)), None)
    if engine is None:
        raise CannotBuild(f"this machine has no container runtime: neither {' nor '.join(_ENGINES)} is in PATH")
    _run([engine, "info"], f"the container runtime of this machine does not answer ({engine} info)", quiet=True)
    there = subprocess.run([engine, "image", "inspect", image], env=_environment(), capture_output=True, check=False)
    if there.returncode != 0:
        _run([engine, "pull", image], f"the image {image} is not on this machine, and cannot be fetched")
    return PreparedEnvironment(engine=engine, image=image)


# ---------------------------------------------------------------- programs


def _run(command: Sequence[str], otherwise: str, *, quiet: bool = False) -> None:
    """Runs a program, whose output is ours unless it is to be quiet; raises CannotBuild when it fails, saying otherwise."""
    if not quiet:
        _say("+ " + " ".join(command))
    try:
        ended = subprocess.run(
            command,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if quiet else None,
            check=False,
        )
    except OSError as error:
        raise CannotBuild(otherwise or f"{command[0]}: {error.strerror}") from error
    if ended.returncode != 0:
        raise CannotBuild(otherwise)


def _output(command: Sequence[str]) -> str:
    ended = subprocess.run(command, env=_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if ended.returncode != 0:
        raise CannotBuild(f"{' '.join(command)} ended with {ended.returncode}")
    return ended.stdout.decode()


def _environment() -> dict[str, str]:
    """Ours, without what would lead programs to our own modules."""
    return {name: text for name, text in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """0: it is ready. 1: the last line says why it cannot be."""
    task = TypeAdapter(EnvironmentTask).validate_json(sys.argv[1])
    try:
        build(task)
    except CannotBuild as error:
        if str(error):
            _say(str(error))
        return 1
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
