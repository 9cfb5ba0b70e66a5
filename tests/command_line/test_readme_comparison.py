"""The comparison that README shows: its commands, typed as they stand there, print what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.command_line.main import app

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_commands_of_the_readme_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = README.read_text().split("## Simulate before you submit", 1)[1].split("\n## ", 1)[0]
    commands, printed = re.findall(r"```\w*\n(.*?)```", section, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shown = ""
    for line in commands.splitlines():
        _, *arguments = shlex.split(line)
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        shown = result.stdout
    assert len(printed.splitlines()) > 2
    assert printed in shown
