"""The repository as the structure tests see it: its files, its packages, its parsed modules."""

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

DECISION_PACKAGES = ("domain", "global_scheduler", "regional_scheduler", "cluster_manager", "data_placement")
"""Functional core, and no files either."""

CORE_PACKAGES = (*DECISION_PACKAGES, "formats", "simulator")
"""Functional core; `formats` and `simulator` may read and write the files that they are given."""

GENERATED = "topmast/v1/"


@cache
def files() -> tuple[Path, ...]:
    """Every file that is, or would be, tracked, relative to the root, sorted."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = sorted(set(filter(None, listed.stdout.split("\0"))))
    return tuple(Path(name) for name in names if (ROOT / name).is_file())


def python_files(packages: tuple[str, ...] = ()) -> tuple[Path, ...]:
    """The modules that people write, of these top-level folders or of all."""
    modules = (path for path in files() if path.suffix == ".py" and not path.as_posix().startswith(GENERATED))
    return tuple(path for path in modules if not packages or path.parts[0] in packages)


def markdown_files() -> tuple[Path, ...]:
    return tuple(path for path in files() if path.suffix == ".md")


@cache
def text(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(text(path), filename=str(path))
