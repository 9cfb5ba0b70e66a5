"""What the tests of the command share: a server on loopback, and the command that talks to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from services.command_line.main import app
from tests.client.loopback_server import LoopbackServer


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


class Topmast:
    """The command `topmast`, told where the server is."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def __call__(self, *arguments: str, standard_input: str | None = None) -> Result:
        return CliRunner(env=self._environment).invoke(app, list(arguments), input=standard_input)


@pytest.fixture
def topmast(server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topmast:
    """Typed in a folder of its own: submissions pack the one in which they are typed."""
    folder = tmp_path / "typed-in"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return Topmast({"TOPMAST_ADDRESS": server.address, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
