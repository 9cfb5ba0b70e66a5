"""Commands that bring something up: their options, and the database that is really there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from services.command_line.main import app
from services.database.embedded import is_running


def topmast(*arguments: str, **environment: str) -> Result:
    return CliRunner(env={"TOPMAST_DATABASE_URL": "", **environment}).invoke(app, list(arguments))


@pytest.mark.parametrize(
    "command",
    ["up", "down", "demo", "serve global", "serve regional", "serve cluster", "db upgrade", "db downgrade", "version"],
)
def test_every_command_explains_itself(command: str) -> None:
    told = topmast(*command.split(), "--help")
    assert told.exit_code == 0
    assert f"{command} [OPTIONS]" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("serve", "cluster", "--region", "eu", "--cluster", "eu-1", "--executor", "slurm"), "slurm"),
        (("serve", "cluster", "--region", "eu"), "--cluster"),
        (("serve", "regional"), "--region"),
        (("up", "--port", "70000"), "--port"),
        (("up", "--clock-speed", "0"), "--clock-speed"),
        (("up", "--fleet", "nowhere/fleet.yaml"), "nowhere/fleet.yaml"),
        (("demo", "--trace", "nowhere/trace.csv"), "nowhere/trace.csv"),
    ],
)
def test_wrong_usage_is_told(arguments: tuple[str, ...], sentence: str) -> None:
    told = topmast(*arguments)
    assert told.exit_code == 2
    assert sentence in told.stderr


def test_down_without_a_service_is_no_error(tmp_path: Path) -> None:
    assert topmast("down", "--home", str(tmp_path)).stdout == f"no Topmast was up from {tmp_path}\n"
    assert json.loads(topmast("down", "--json", TOPMAST_HOME=str(tmp_path)).stdout) == {"was_running": False}


def test_a_database_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    away = "postgresql://nobody@127.0.0.1:1/nothing"
    told = topmast("db", "upgrade", "--home", str(tmp_path), "--database-url", away)
    assert told.exit_code == 5
    assert told.stderr.startswith("topmast: no database answers at TOPMAST_DATABASE_URL")
    assert topmast("db", "upgrade", "--database-url", "mysql://x").exit_code == 4


@pytest.mark.live
def test_the_tables_of_the_embedded_database_go_up_and_down(tmp_path: Path) -> None:
    home = ("--home", str(tmp_path))
    upgraded = topmast("db", "upgrade", *home)
    assert upgraded.exit_code == 0, upgraded.stderr
    assert "(before: empty)" in upgraded.stdout
    told = json.loads(topmast("db", "current", *home, "--json").stdout)
    assert told["current"] == told["newest"]
    refused = topmast("db", "upgrade", *home, "--revision", "no-such")
    assert refused.exit_code == 4
    assert "no-such" in refused.stderr
    assert topmast("db", "downgrade", *home, "base").stdout == "the database is empty\n"
    assert not is_running(tmp_path), "who starts the server for one command stops it again"
