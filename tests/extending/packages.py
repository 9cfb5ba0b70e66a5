"""The packages that docs/extending.md shows, installed as an installer would leave them behind."""

from __future__ import annotations

import importlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@dataclass(frozen=True)
class ExamplePackage:
    """What one section of the page shows: what is known about the package, and its modules by name."""

    name: str
    entry_points: dict[str, dict[str, str]]
    modules: dict[str, str]

    def install(self, folder: Path) -> None:
        """Puts the modules and their metadata into a folder of the path."""
        for module, code in self.modules.items():
            (folder / f"{module}.py").write_text(code)
        about = folder / f"{self.name.replace('-', '_')}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {self.name}\nVersion: 1.0\n")
        lines = [
            line
            for group, points in self.entry_points.items()
            for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
        ]
        (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
        importlib.invalidate_caches()


def section(title: str, page: Path = PAGE) -> str:
    """The text of one section of the page."""
    text = page.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert text, f"{page.name} has no section {title}"
    return text


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of that language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def package_of(title: str, page: Path = PAGE) -> ExamplePackage:
    """The package that a section shows: its pyproject.toml, and each Python block that names its module."""
    text = section(title, page)
    (about,) = [tomllib.loads(block) for block in blocks(text, "toml") if "[project]" in block]
    project = about["project"]
    modules = modules_of(title, page)
    assert sorted(modules) == sorted(about["tool"]["setuptools"]["py-modules"])
    return ExamplePackage(project["name"], project["entry-points"], modules)


def modules_of(title: str, page: Path = PAGE) -> dict[str, str]:
    """The Python blocks of a section that name their module, by that name."""
    found = {}
    for block in blocks(section(title, page), "python"):
        named = re.search(r"^# module: (\w+)$", block, re.MULTILINE)
        if named:
            found[named[1]] = block
    assert found, f"section {title} shows no module"
    return found
