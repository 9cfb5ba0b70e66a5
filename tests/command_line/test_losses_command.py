"""topmast cluster declare-lost and topmast region declare-lost: what they want to be told, and what they say."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from services.command_line.exit_code import ExitCode
from services.command_line.main import app
from tests.command_line.conftest import Topmast


@pytest.mark.parametrize("name", ["east", "east/", "/east-a", ""])
def test_a_cluster_is_named_with_its_region(name: str) -> None:
    shown = CliRunner().invoke(app, ["cluster", "declare-lost", name, "--address", "127.0.0.1:1"])
    assert shown.exit_code == ExitCode.USAGE
    assert "Invalid value for REGION/CLUSTER: is" in " ".join(shown.output.split())
    assert "as in east/east-a" in " ".join(shown.output.split())


def test_it_says_how_much_ends_and_whether_it_was_lost_before(topmast: Topmast) -> None:
    assert topmast("region", "declare-lost", "east").stdout == "region east is lost: 2 attempts end\n"
    assert topmast("cluster", "declare-lost", "west/west-a").stdout == "cluster west/west-a is lost: 1 attempt ends\n"
    assert topmast("region", "declare-lost", "south").stdout == "region south is lost already: 0 attempts end\n"
