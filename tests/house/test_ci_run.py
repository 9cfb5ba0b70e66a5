"""`.ci/run` ends with the test runner's closing line, and is green only when something passed and nothing failed."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.house.repository import ROOT

_GREEN = "======= 3 passed, 1 deselected in 4.20s ======="
_LONG = "======= 812 passed in 341.07s (0:05:41) ======="
_RED = "======= 1 failed, 2 passed in 4.20s ======="
_EMPTY = "======= 4 deselected in 0.20s ======="
_SKIPPED = "======= 4 skipped in 0.20s ======="


@pytest.mark.parametrize(
    ("printed", "exit_code", "green"),
    [
        ([_GREEN], 0, True),
        ([_LONG], 0, True),
        ([_GREEN, "a server says goodbye"], 0, True),
        ([_RED], 1, False),
        ([_EMPTY], 0, False),
        ([_SKIPPED], 0, False),
        ([_GREEN], 1, False),
    ],
    ids=["green", "long", "late-output", "red", "empty", "skipped", "red-after-green"],
)
def test_it_ends_with_the_closing_line(tmp_path: Path, printed: list[str], exit_code: int, green: bool) -> None:
    finished = _run(tmp_path, printed, exit_code)
    assert (finished.returncode == 0) is green
    assert finished.stdout.splitlines()[-1] == printed[0]


def test_it_fails_when_the_tests_did_not_run(tmp_path: Path) -> None:
    for exit_code in (0, 1):
        finished = _run(tmp_path, ["Found 3 errors."], exit_code)
        assert finished.returncode != 0
        assert "did not run" in finished.stderr


@pytest.mark.parametrize("possible", [True, False], ids=["installed", "not-installed"])
def test_a_browser_that_cannot_be_installed_breaks_nothing(tmp_path: Path, possible: bool) -> None:
    """With an apt-get that says what it is asked for, and a user who may."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, script in (
        ("apt-get", f"echo asked for $* >>{tmp_path}/asked; exit {0 if possible else 100}"),
        ("id", "echo 0"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    finished = _run(tmp_path, [_GREEN], 0, {"PATH": path, "TOPMAST_CI_BROWSER": "no-such-browser"})
    assert finished.returncode == 0
    assert finished.stdout.splitlines()[-1] == _GREEN
    assert ("no-such-browser could not be installed" in finished.stdout) is not possible
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert asked[-1].endswith(" no-such-browser")
    assert len(asked) == 2


def _run(
    folder: Path, printed: list[str], exit_code: int, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a copy of the script over a Makefile whose `test` prints these lines and ends so; it finds its browser."""
    (folder / ".ci").mkdir(exist_ok=True)
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    recipe = "".join(f"\t@echo '{line}'\n" for line in printed)
    (folder / "Makefile").write_text(f"test:\n{recipe}\t@exit {exit_code}\n", encoding="utf-8")
    variables = {**os.environ, "TOPMAST_CI_BROWSER": "sh", **(environment or {})}
    return subprocess.run([folder / ".ci" / "run"], env=variables, capture_output=True, text=True, check=False)
