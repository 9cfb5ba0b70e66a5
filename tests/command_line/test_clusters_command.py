"""topmast clusters, for files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.command_line.main import app

FLEET = """
regions:
- region: west
  clusters:
  - {cluster: a, machine_groups: [{count: 6, machines_per_rack: 2, gpu_model: H100, gpus: 8, cpus: 64, memory_gib: 512}]}
  - {cluster: b, machine_groups: [{count: 1, gpu_model: H100, gpus: 8, cpus: 64, memory_gib: 512}]}
"""
REQUESTS = """
requests:
- {cluster: a, capacity: [{gpu_model: H100, machines: 2}]}
- {cluster: b, capacity: [{gpu_model: H100, machines: 4, spares: 1}]}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    fleet, requests = tmp_path / "fleet.yaml", tmp_path / "requests.yaml"
    fleet.write_text(FLEET, encoding="utf-8")
    requests.write_text(REQUESTS, encoding="utf-8")
    return str(fleet), str(requests)


def test_a_plan_for_a_fleet_file_shows_requests_figures_and_moves(files: tuple[str, str]) -> None:
    fleet, requests = files
    shown = CliRunner().invoke(app, ["clusters", "plan", requests, "--fleet", fleet])
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["b", "H100", "machines", "4", "1", "5", "1", "yes"] in lines
    assert sum(line[1:] == ["a", "b", "0"] for line in lines) == 4
    assert "region west: 4 moves (mixed_integer" in shown.stderr


def test_a_plan_as_json_has_its_cost_and_bound(files: tuple[str, str]) -> None:
    fleet, requests = files
    shown = CliRunner().invoke(app, ["clusters", "plan", requests, "--fleet", fleet, "--json", "--time-limit", "5"])
    plan = json.loads(shown.stdout)
    assert (plan["region"], plan["optimal"], plan["cost"], plan["bound"]["moves"]) == (
        "west",
        True,
        {"unmet": 0, "unmet_spares": 0, "running": 0, "moves": 4, "spread": 7},
        4,
    )
    assert [move["to_cluster"] for move in plan["moves"]] == ["b"] * 4


def test_what_is_wrong_names_the_file_and_the_field(files: tuple[str, str], tmp_path: Path) -> None:
    fleet, _ = files
    bad = tmp_path / "bad.yaml"
    bad.write_text("requests: [{cluster: c, capacity: [{gpu_model: H100, machines: 100}]}]", encoding="utf-8")
    shown = CliRunner().invoke(app, ["clusters", "plan", str(bad), "--fleet", fleet])
    assert shown.exit_code != 0
    assert "bad.yaml: requests[0].cluster: there is no cluster c" in shown.stderr
    shown = CliRunner().invoke(app, ["clusters", "plan", "--fleet", fleet])
    assert "with --fleet give the requests to plan for" in shown.stderr
