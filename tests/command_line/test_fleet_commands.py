"""topmast fleet, machines, drain, undrain, tenants, usage, apply and serve, with a service that works."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from domain.fleet import Fleet, Region
from formats.fleet_file import fleet_document
from services.command_line.exit_code import ExitCode
from tests.command_line.conftest import Topmast
from tests.live.background import service_in_background
from tests.live.running import PATIENCE_REAL_S
from tests.live.world import FLEET


@dataclass(frozen=True)
class Served:
    topmast: Topmast
    database_url: str


@pytest.fixture
def served(database_url: str, tmp_path: Path) -> Iterator[Served]:
    with service_in_background(database_url, tmp_path / "home") as service:
        environment = {"TOPMAST_ADDRESS": service.address, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
        yield Served(Topmast(environment), database_url)


def _documents(result: Result) -> list[dict[str, Any]]:
    """The lines that are objects: what the service logs beside comes to the same stream here."""
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def _run(topmast: Topmast, *options: str) -> str:
    result = topmast("run", "--emulate-s", "1000000", "--gpus", "8", "--tenant", "ranking", *options)
    assert result.exit_code == 0, result.stderr
    return next(line for line in result.stdout.splitlines() if line.startswith("w"))


def _until_occupied(topmast: Topmast) -> None:
    deadline = time.monotonic() + PATIENCE_REAL_S
    while not _documents(topmast("machines", "--occupied", "--json")):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_fleet_is_looked_at_and_drained(served: Served) -> None:
    topmast = served.topmast
    shown = topmast("fleet")
    assert shown.exit_code == 0, shown.stderr
    assert "REGION  CLUSTER  GPU MODEL" in shown.stdout
    rows = {row["cluster"]: row for row in _documents(topmast("fleet", "--region", "west", "--json"))}
    assert (rows["west-a"]["gpus"], rows["west-a"]["gpus_free"], rows["west-b"]["gpu_model"]) == (24, 24, "A100")
    nowhere = topmast("machines", "--cluster", "mars")
    assert (nowhere.exit_code, "east-a, east-b, west-a, west-b" in nowhere.stderr) == (ExitCode.NOT_FOUND, True)
    listed = topmast("machines", "--region", "west", "--limit", "2")
    assert "west-a-m1" in listed.stdout
    assert "--page-token west-a-m1" in listed.stderr
    more = topmast("machines", "--region", "west", "--page-token", "west-a-m1", "--json")
    assert [row["machine"] for row in _documents(more)] == ["west-a-m2", "west-b-m0", "west-b-m1"]

    kept = topmast("drain", "west-a", "--reason", "new racks", "--deadline", "90d")
    assert kept.exit_code == 0, kept.stderr
    assert "cluster west-a: 3 machines are drained; what runs there leaves at " in kept.stdout
    draining = topmast("machines", "--state", "draining").stdout
    assert draining.count("new racks") == 3
    assert topmast("machines", "--state", "down").stderr.endswith("no machine is like that\n")
    gone = topmast("drain", "west-a", "west-b", "--wait", "--json")
    (answer,) = _documents(gone)
    assert (answer["machines"], answer["deadline_s"]) == (5, None)
    wrong = topmast("drain", "west-a", "--deadline", "soon")
    assert (wrong.exit_code, "is no duration" in wrong.stderr) == (ExitCode.USAGE, True)
    unit = topmast("drain", "west-a", "--deadline", "90")
    assert (unit.exit_code, "'90' has no unit; write 90s" in unit.stderr) == (ExitCode.USAGE, True)
    over = topmast("drain", "west-a", "--deadline", "2001-01-31")
    assert (over.exit_code, "leave it out for at once" in over.stderr) == (ExitCode.REFUSED, True)
    assert "cluster west-b: 2 machines are drained no more" in topmast("undrain", "west-b").stdout
    unknown = topmast("undrain", "west-z")
    assert (unknown.exit_code, "the fleet has the regions east, west" in unknown.stderr) == (ExitCode.NOT_FOUND, True)


def test_apply_says_what_to_drain_and_who_is_missing(served: Served, tmp_path: Path) -> None:
    topmast = served.topmast
    workload = _run(topmast, "--gpu-model", "V100")
    smaller, larger = tmp_path / "smaller.yaml", tmp_path / "larger.yaml"
    east, west = FLEET.regions
    smaller.write_text(_yaml(Fleet((east, Region(west.region, west.clusters[1:])))))
    north = {"region": "north", "clusters": [{"cluster": "north-a", "racks": []}]}
    larger.write_text(yaml.safe_dump({"regions": [*yaml.safe_load(_yaml(FLEET))["regions"], north]}))
    _until_occupied(topmast)
    refused = topmast("apply", "-f", str(smaller))
    assert refused.exit_code == ExitCode.REFUSED
    assert "topmast drain west-a --wait" in refused.stderr
    assert topmast("drain", "west-a", "--wait").exit_code == 0
    applied = topmast("apply", "-f", str(smaller))
    assert applied.exit_code == 0, applied.stderr
    assert "nobody serves" not in applied.stderr
    applied = topmast("apply", "-f", str(larger))
    assert applied.exit_code == 0, applied.stderr
    assert "topmast serve cluster --region north --cluster north-a" in applied.stderr
    topmast("cancel", workload)


def test_tenants_and_gpu_hours_are_shown_and_exported(served: Served) -> None:
    topmast = served.topmast
    assert "nothing was used yet" in topmast("usage").stderr
    workload = _run(topmast, "--gpu-model", "A100")
    _until_occupied(topmast)
    shown = topmast("tenants", "ranking")
    assert shown.exit_code == 0, shown.stderr
    (quota,) = [line.split() for line in shown.stdout.splitlines() if line.startswith("ranking  ") and " A100 " in line]
    assert quota[:5] == ["ranking", "0", "A100", "24", "8"]
    assert [row["tenant"] for row in _documents(topmast("tenants", "--json"))] == [
        "playground",
        "ranking",
        "research",
        "vision",
    ]
    assert topmast("tenants", "nobody").exit_code == ExitCode.NOT_FOUND

    exported = topmast("usage", "--by", "workload", "--by", "model", "--by", "period", "--csv")
    assert exported.exit_code == 0, exported.stderr
    head, row = [*csv.reader(line for line in exported.stdout.splitlines() if "," in line and "[" not in line)]
    assert head == ["period", "workload", "model", "gpu_hours"]
    assert row[1:3] == [workload, "A100"]
    assert float(row[3]) > 0
    assert "GPU-hours held from " in exported.stderr
    (by_tenant,) = _documents(topmast("usage", "--json"))
    assert (by_tenant["tenant"], by_tenant["workload"]) == ("ranking", "")
    assert by_tenant["gpu_hours"] >= float(row[3])
    later = topmast("usage", "--from", "2200-01-01")
    assert "nothing was used; GPU-hours held from 2200-01-01" in later.stderr
    half = topmast("usage", "--until", "2026-01-31T12:00:00")
    assert (half.exit_code, "no whole day" in half.stderr) == (ExitCode.USAGE, True)
    topmast("cancel", workload)


def test_serve_refuses_at_once_what_the_fleet_does_not_have(served: Served, tmp_path: Path) -> None:
    run = "from services.command_line.main import main; main()"
    configuration = tmp_path / "scheduler.yaml"
    configuration.write_text("tasks: {allow_root: true}\nsecurity: {authentication: false}\n")
    no_cluster = "region east has no cluster west-a; its clusters: east-a, east-b; west-a is in region west"
    for arguments, sentence in (
        (("regional", "--region", "mars"), "the fleet has no region mars; it has east, west"),
        (("cluster", "--region", "east", "--cluster", "west-a"), no_cluster),
    ):
        where = [
            "--database-url",
            served.database_url,
            "--home",
            str(tmp_path / "tier"),
            "--config",
            str(configuration),
        ]
        command = [sys.executable, "-c", run, "serve", *arguments, *where]
        tier = subprocess.run(command, capture_output=True, text=True, check=False)
        assert tier.returncode == ExitCode.NOT_FOUND, tier.stderr
        assert f"topmast: {sentence}" in tier.stderr


def _yaml(fleet: Fleet) -> str:
    return yaml.safe_dump(fleet_document(fleet))
