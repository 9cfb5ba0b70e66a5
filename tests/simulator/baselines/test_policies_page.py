"""docs/policies.md is true: its table is complete, its example can be installed and run."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.problems import FormatError
from simulator.baselines import BASELINES
from simulator.policies.registry import ENTRY_POINT_GROUP, policies, policy_called
from tests.simulator.baselines.runs import one_machine, row, run

PAGE = Path(__file__).parents[3] / "docs" / "policies.md"
MODULE = "largest_first"


def _block(language: str) -> str:
    """The only code block of that language."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


def _install(folder: Path, code: str, entry_points: dict[str, str]) -> None:
    """What an installer leaves behind: the module, and what is known about the package."""
    (folder / f"{MODULE}.py").write_text(code)
    about = folder / f"{MODULE}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: largest-first\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in entry_points.items())
    (about / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{lines}")
    importlib.invalidate_caches()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for packages, on the path as long as the test lasts."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop(MODULE, None)


def test_the_example_can_be_installed_and_run(site: Path) -> None:
    project = tomllib.loads(_block("toml"))["project"]
    assert project["dependencies"] == ["topmast"]
    _install(site, _block("python"), project["entry-points"][ENTRY_POINT_GROUP])

    known = policies()
    assert "largest_first" in known
    assert {policy.name for policy in BASELINES} < set(known)

    rows = [
        row("runs", 0, 100, 3),
        row("narrow", 1, 200, 2),
        row("wide", 2, 50, 4),
        row("too long", 3, 200, 1),
        row("in time", 4, 90, 1),
    ]
    done = run(policy_called("largest_first"), one_machine(4), rows)
    assert done.first_starts == {"runs": 0.0, "wide": 100.0, "in time": 4.0, "narrow": 150.0, "too long": 150.0}
    assert run("fifo", one_machine(4), rows).first_starts["wide"] == 300.0


def test_a_package_may_make_its_policy_in_a_function(site: Path) -> None:
    code = _block("python") + "\n\ndef make() -> Policy:\n    return LARGEST_FIRST\n"
    _install(site, code, {"anything": f"{MODULE}:make"})
    assert policies()["largest_first"].summary == "largest first, with backfilling"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (f"{MODULE}:NOT_THERE", "cannot be loaded"),
        ("no_such_module:POLICY", "cannot be loaded"),
        (f"{MODULE}:MostGpus", "brings a MostGpus; it must be a Policy"),
        ("simulator.baselines.fifo:FIFO", "there is one of that name"),
    ],
)
def test_a_package_that_brings_no_new_policy_is_named(site: Path, value: str, written: str) -> None:
    _install(site, _block("python"), {"mine": value})
    with pytest.raises(FormatError, match=written) as refused:
        policies()
    assert f"mine = {value}" in str(refused.value)


def test_the_table_lists_every_policy() -> None:
    table = PAGE.read_text().partition("## The policies that there are")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE) == [policy.name for policy in BASELINES]
    for policy in BASELINES:
        line = next(line for line in table.splitlines() if line.startswith(f"| `{policy.name}` |"))
        assert line.endswith("| scans |") == policy.scans
        assert line.endswith("| oracle |") == ("oracle" in policy.summary)


def test_the_points_name_files_that_there_are() -> None:
    points = PAGE.read_text().partition("| point |")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+)` in `([\w/]+\.py)` \|$", points, re.MULTILINE)
    assert len(named) == 8
    for shape, path in named:
        assert f"class {shape}(Protocol)" in (PAGE.parents[1] / path).read_text()
