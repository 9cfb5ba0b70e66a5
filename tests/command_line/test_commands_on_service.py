"""Commands about tables and machines, with a service that answers: what they show, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

from data_placement.warehouse_generator import generate_warehouse
from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId
from formats.warehouse_folder import write_warehouse
from services.command_line.exit_code import ExitCode
from services.configuration import Configuration
from services.data_placement.settings import DataSettings
from tests.command_line.conftest import Topmast
from tests.live.background import service_in_background

REQUESTS = """
requests:
- {cluster: region00-a, capacity: [{gpu_model: A100, machines: 1}]}
- {cluster: region00-b, capacity: [{gpu_model: A100, machines: 3}]}
- {cluster: region01-a, capacity: [{gpu_model: A100, machines: 1}]}
"""


def _cluster(name: str, machines: int) -> Cluster:
    own = [Machine(MachineId(f"{name}-{place}"), GpuModel("A100"), 8, 64.0, 512.0) for place in range(machines)]
    return Cluster(ClusterId(name), (Rack(RackId(f"{name}-rack"), tuple(own)),))


FLEET = Fleet(
    tuple(
        Region(RegionId(name), (_cluster(f"{name}-a", 3), _cluster(f"{name}-b", 1)))
        for name in ("region00", "region01", "region02")
    )
)


@pytest.fixture
def topmast(database_url: str, tmp_path: Path) -> Iterator[Topmast]:
    configuration = Configuration(data=DataSettings(emulated=True))
    with service_in_background(database_url, tmp_path / "home", FLEET, configuration) as service:
        yield Topmast({"TOPMAST_ADDRESS": service.address, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def _documents(result: Result) -> list[dict[str, Any]]:
    """The lines that are objects: what the service logs beside comes to the same stream here."""
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def test_tables_are_imported_planned_applied_and_their_moves_shown(topmast: Topmast, tmp_path: Path) -> None:
    folder = tmp_path / "warehouse"
    warehouse = generate_warehouse(200, 3, np.random.default_rng(1))
    write_warehouse(folder, warehouse)
    assert "200 new" in topmast("data", "import", str(folder), "--yes").stdout
    nowhere = topmast("data", "list", "--region", "mars")
    assert (nowhere.exit_code, "there is no region 'mars'" in nowhere.stderr) == (ExitCode.NOT_FOUND, True)
    home = warehouse.regions.names[int(warehouse.tables.home[0])]
    assert [
        table["home"] for table in _documents(topmast("data", "list", "--region", home, "--limit", "1", "--json"))
    ] == [home]
    early = topmast("data", "apply")
    assert early.exit_code == ExitCode.NOT_FOUND
    assert "topmast data plan --live makes one" in early.stderr

    shown = topmast("data", "plan", "--live", "--explain", "3")
    assert shown.exit_code == 0, shown.stderr
    for words in ("reads across regions", "GPU demand beside supply", "storage beside capacity", "COMMUNITY"):
        assert words in shown.stdout
    assert " of community " in shown.stdout
    assert "%" in next(line for line in shown.stdout.splitlines() if line.startswith("trained at home"))
    wrong = topmast("data", "plan", "--live", "--spare", "mars=0.5")
    assert wrong.exit_code == ExitCode.REFUSED
    assert "spare_gpu_shares[0].region: there is no region mars" in wrong.stderr
    planned = topmast(
        "data", "plan", "--live", "--json", "--bound", "--time-limit", "20", "--failure", "region00:region01=1"
    )
    assert planned.exit_code == 0, planned.stderr
    plan = _documents(planned)[0]
    assert plan["communities"]
    assert plan["bound"] <= plan["objective"]["after"]["total"]

    looked = topmast("data", "apply", "--json")
    assert _documents(looked)[0]["plan"] == plan["plan"]
    applied = topmast("data", "apply", "--yes", "--json")
    assert applied.exit_code == 0, applied.stderr
    answer = _documents(applied)[0]
    assert (answer["plan"], answer["moves"] > 0) == (plan["plan"], True)
    again = topmast("data", "apply", str(plan["plan"]), "--yes", "--json")
    assert _documents(again) == [answer], "the first answer may have been lost"
    moves = _documents(topmast("data", "moves", "--limit", "1000", "--json"))
    assert len(moves) == answer["moves"]
    table = moves[0]["table"]
    assert {move["table"] for move in _documents(topmast("data", "moves", "--table", table, "--json"))} == {table}
    assert "BY" in topmast("data", "moves").stdout
    assert topmast("data", "moves", "--state", "lost").exit_code == ExitCode.USAGE

    community = next(one for one in plan["communities"] if one["tables"] > 1)
    explained = topmast("data", "explain", community["largest_tables"][0])
    assert explained.exit_code == 0, explained.stderr
    assert f"plan {plan['plan']}: {community['sentence']}" in explained.stdout
    (document,) = _documents(topmast("data", "explain", community["largest_tables"][0], "--json"))
    assert document["community"]["name"] == community["name"]


def test_machines_are_planned_applied_and_explained(topmast: Topmast, tmp_path: Path) -> None:
    requests = tmp_path / "requests.yaml"
    requests.write_text(REQUESTS, encoding="utf-8")
    nothing = topmast("clusters", "plan")
    assert nothing.exit_code == ExitCode.REFUSED
    assert "no cluster asks for machines anywhere" in nothing.stderr
    planned = topmast("clusters", "plan", str(requests), "--region", "region00", "--json", "--time-limit", "5")
    assert planned.exit_code == 0, planned.stderr
    plans = _documents(planned)
    assert [(plan["region"], len(plan["moves"])) for plan in plans] == [("region00", 2)]

    looked = topmast("clusters", "apply", str(requests), "--time-limit", "5")
    assert (looked.exit_code, "repeat it with --yes" in looked.stderr) == (0, True)
    assert topmast("clusters", "plan").exit_code == ExitCode.REFUSED, "it was only shown"
    for _ in range(2):
        applied = topmast("clusters", "apply", str(requests), "--region", "region01", "--yes", "--json")
        assert _documents(applied) == [{"regions": ["region01"]}], applied.stderr
    elsewhere = topmast("clusters", "explain", "region00-b")
    assert "no cluster of region region00 asks for machines" in elsewhere.stdout
    everywhere = _documents(topmast("clusters", "apply", str(requests), "--yes", "--json"))
    assert everywhere == [{"regions": ["region00", "region01"]}]
    assert "region00-b" in topmast("clusters", "explain", "region00-b").stdout
    assert "region00-a-0" in topmast("clusters", "explain", "region00-a-0").stdout
    for region, code in (("mars", ExitCode.NOT_FOUND), ("region02", ExitCode.REFUSED)):
        assert topmast("clusters", "apply", str(requests), "--region", region, "--yes").exit_code == code
    assert topmast("clusters", "explain", "nothing").exit_code == ExitCode.NOT_FOUND
    assert topmast("clusters", "plan", str(tmp_path / "nowhere.yaml")).exit_code == ExitCode.USAGE
