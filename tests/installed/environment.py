"""The wheel of this repository, in environments that are new: with what users install, or with what a service needs.

The libraries are those of the environment in which the tests run, linked; so nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.house.repository import ROOT, files

_BUILD = "import sys; from setuptools import build_meta; print(build_meta.{what}(sys.argv[1]))"
_OURS = re.compile(r"topmast|__editable__")
_WITHHELD = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "TOPMAST_ADDRESS")


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment, apart from all others."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return next((self.folder / "lib").glob("python*/site-packages"))

    def run(
        self, *arguments: str | Path, folder: Path, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of its programs in a folder; the name of the program comes first."""
        program, *rest = arguments
        environment = {name: value for name, value in os.environ.items() if name not in _WITHHELD}
        return subprocess.run(
            [self.folder / "bin" / program, *rest],
            cwd=folder,
            env=environment | dict(variables or {}),
            capture_output=True,
            text=True,
            check=False,
        )


def source(folder: Path) -> Path:
    """A copy of the repository, without what only lies about in it."""
    for file in files():
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target)
    return folder


def build(source: Path, target: Path, *, editable: bool = False) -> Path:
    """The wheel of these sources."""
    what = "build_editable" if editable else "build_wheel"
    target.mkdir(parents=True, exist_ok=True)
    built = subprocess.run(
        [sys.executable, "-c", _BUILD.format(what=what), str(target)],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return target / built.stdout.splitlines()[-1]


def environment(folder: Path, wheel: Path, extra: str = "") -> Environment:
    """A new environment with the wheel, and with what it needs with this extra."""
    venv.create(folder, symlinks=True, with_pip=False)
    made = Environment(folder)
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(made.site_packages)
    _write_command(made)
    for name in sorted({name for one in _needed(extra) for name in _top_level(one)}):
        (made.site_packages / name).symlink_to(_installed_folder(name))
    return made


def _write_command(made: Environment) -> None:
    """As pip does it."""
    entry_points = next(made.site_packages.glob("topmast-*.dist-info/entry_points.txt")).read_text(encoding="utf-8")
    found = re.search(r"^topmast = ([\w.]+):(\w+)$", entry_points, re.MULTILINE)
    assert found is not None, entry_points
    module, function = found.groups()
    command = made.folder / "bin" / "topmast"
    command.write_text(
        f"#!{made.python}\nimport sys\nfrom {module} import {function}\n"
        f"if __name__ == '__main__':\n    sys.exit({function}())\n"
    )
    command.chmod(0o755)


def _needed(extra: str) -> Iterator[Distribution]:
    """What pip would install besides the wheel."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    waiting = [(Requirement(one), "") for one in [*project["dependencies"], *extras.get(extra, ())]]
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement, of = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": of}):
            continue
        for wanted in ("", *requirement.extras):
            key = (requirement.name.lower(), wanted)
            if key in seen:
                continue
            seen.add(key)
            if requirement.name == "topmast":
                waiting += [(Requirement(one), "") for one in extras.get(wanted, ())]
                continue
            found = distribution(requirement.name)
            yield found
            waiting += [(Requirement(one), wanted) for one in found.requires or ()]


def _top_level(of: Distribution) -> Iterator[str]:
    for file in of.files or ():
        name = file.parts[0]
        if name not in ("..", "__pycache__") and not _OURS.match(name) and not name.endswith(".pth"):
            yield name


def _installed_folder(name: str) -> Path:
    for folder in sys.path:
        if folder.endswith("site-packages") and (Path(folder) / name).exists():
            return Path(folder) / name
    raise PackageNotFoundError(name)
