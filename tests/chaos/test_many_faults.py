"""Two hundred faults of every kind on one live service, by the seed of the test session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(9_000)]

_FAULTS = 200
_REPOSITORY = Path(__file__).resolve().parents[2]


def test_never_is_what_was_acknowledged_lost_or_done_twice(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    output = tmp_path / "result.json"
    command = [sys.executable, "-m", "tests.chaos.driver", "--faults", str(_FAULTS), "--output", str(output)]
    command += ["--seed", str(request.config.getoption("seed")), "--folder", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(_REPOSITORY)}
    # Not captured: it says each fault and its recovery as it goes.
    ran = subprocess.run(command, cwd=_REPOSITORY, env=environment, check=False)
    result = json.loads(output.read_text(encoding="utf-8"))
    assert result["closing"]["problems"] == []
    assert ran.returncode == 0
    assert len(result["faults"]) + sum(result["passed_over"].values()) == _FAULTS
