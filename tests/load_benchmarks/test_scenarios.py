"""Every scenario of the load tests, small, as its command: a real service, clients on a Ray of their own, one JSON object each."""

import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.load.__main__ import SCENARIOS

pytestmark = [pytest.mark.live, pytest.mark.nightly]

SIZES = {
    "submissions": ("--per-s", "20", "--duration-s", "3", "--burst", "10"),
    "starts": ("--per-s", "10", "--duration-s", "3", "--burst", "0", "--settle-s", "5"),
    "watches": ("--streams", "20", "--per-s", "20", "--duration-s", "3"),
    "reads": ("--workloads", "500", "--per-s", "20", "--duration-s", "3"),
    "flood": ("--per-s", "20", "--duration-s", "5", "--settle-s", "5"),
    "soak": ("--minutes", "0.5", "--per-s", "5"),
}


def test_every_scenario_is_tried() -> None:
    assert set(SIZES) == set(SCENARIOS)


@pytest.mark.parametrize("scenario", sorted(SIZES))
def test_a_scenario_measures_what_was_answered(scenario: str) -> None:
    said = run(scenario, *SIZES[scenario])
    assert said["benchmark"] == f"load_{scenario}"
    measured = list(latencies(said))
    assert measured
    for one in measured:
        assert one["count"] > 0
        assert 0.0 <= one["p50_s"] <= one["p99_s"] <= one["max_s"]


def run(scenario: str, *sizes: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.load", scenario, "--clients", "1", *sizes]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    assert len(lines) == 1
    said = json.loads(lines[0])
    assert isinstance(said, dict)
    return said


def latencies(said: object) -> list[dict[str, Any]]:
    """All latency figures of a result, however deep."""
    if not isinstance(said, dict):
        return []
    own = [said] if "p99_s" in said else []
    return own + [one for value in said.values() for one in latencies(value)]
