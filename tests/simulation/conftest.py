"""What the tests of simulations share: small traces, a cache of their own, the command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from domain.identifiers import RegionId
from formats.trace import write_trace
from services.command_line.main import app
from services.runtime.home import HOME_VARIABLE
from tests.simulator.inputs.rows import random_rows

MEASURED = ("wall_s", "events_per_s", "peak_rss_mib")
"""What may differ between two runs of the same."""
FLEET = ("--gpus", "128")


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are kept in this test, worker processes included."""
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home" / "cache" / "simulations"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three hundred workloads of five tenants that must queue for 128 GPUs; a third names a region of `regions`."""
    path = tmp_path / "jobs.csv"
    regions = (RegionId("east"), RegionId("west"), None)
    rows = [replace(row, region=regions[place % 3]) for place, row in enumerate(random_rows(300))]
    write_trace(path, rows)
    return path


def topmast(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def good(*arguments: object) -> Result:
    result = topmast(*arguments)
    assert result.exit_code == 0, result.output
    return result
