"""The short form of `make chaos`: one fault of some kinds each, on a service of its own, and all checks at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.driver.faults import KINDS

pytestmark = pytest.mark.live

_REPOSITORY = Path(__file__).resolve().parents[2]
_FAULTS = (
    "kill the global scheduler",
    "kill the postmaster",
    "kill the watcher",
    "kill runner and reaper of a task",
    "partition of a region",
    "clock set back",
    "kill the clients",
)


def test_what_was_acknowledged_ends_once_whatever_is_done_to_the_service(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert set(_FAULTS) <= {kind.name for kind in KINDS}
    output = tmp_path / "result.json"
    command = [sys.executable, "-m", "tests.chaos.driver", "--shared", "--faults", str(len(_FAULTS))]
    command += ["--seed", str(request.config.getoption("seed")), "--folder", str(tmp_path), "--output", str(output)]
    command += [argument for name in _FAULTS for argument in ("--kind", name)]
    environment = {**os.environ, "PYTHONPATH": str(_REPOSITORY)}
    ran = subprocess.run(command, cwd=_REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout[-3_000:]}\n{ran.stderr[-3_000:]}"
    result = json.loads(output.read_text(encoding="utf-8"))
    injected = {fault["kind"] for fault in result["faults"]}
    assert injected | set(result["left_out"]) | set(result["passed_over"]) == set(_FAULTS)
    closing = result["closing"]
    assert closing["problems"] == []
    assert closing["acknowledged"] > len(_FAULTS)
