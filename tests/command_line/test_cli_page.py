"""docs/cli.md tells the truth: every command is on it, every option that it uses exists, and the exit codes are those."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from services.command_line.exit_code import ExitCode
from services.command_line.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if "--install-completion" not in line
]


def commands(group: object, prefix: str = "") -> list[str]:
    found = []
    for name, command in vars(group).get("commands", {}).items():
        nested = commands(command, f"{prefix}{name} ")
        found += nested or [f"{prefix}{name}"]
    return found


def test_every_command_is_on_the_page() -> None:
    known = commands(get_command(app))
    assert len(known) > 20
    result = PAGE.replace("\n", " ")
    missing = [name for name in known if not re.search(rf"(topmast |`){re.escape(name)}\b", result)]
    assert missing in ([], ["version"])


@pytest.mark.parametrize("line", LINES)
def test_every_example_uses_options_that_there_are(line: str) -> None:
    words = shlex.split(line.replace("<workload>", "w1"))
    assert words.pop(0) == "topmast"
    command = next(name for name in commands(get_command(app)) if words[: len(name.split())] == name.split())
    result = CliRunner().invoke(app, [*command.split(), "--help"]).stdout
    options = [word for word in words[: words.index("--") if "--" in words else None] if word.startswith("-")]
    assert [option for option in options if not re.search(rf"{option}\b", result)] == []


def test_the_exit_codes_are_those_of_the_page() -> None:
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)} == {int(code) for code in ExitCode}
