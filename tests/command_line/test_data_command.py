"""topmast data: a generated warehouse is planned, explained and written; what is wrong says so."""

import csv
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from services.command_line.exit_code import ExitCode
from services.command_line.main import app
from simulator.inputs.table_moves import read_table_moves


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["data", *arguments])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "warehouse"
    code, output = run("generate", "--tables", "400", "--regions", "4", "--seed", "3", "-o", str(folder))
    assert code == 0, output
    return folder


def test_a_plan_in_json_has_figures_before_and_after(warehouse: Path, tmp_path: Path) -> None:
    moves = tmp_path / "moves.csv"
    code, output = run("plan", str(warehouse), "--json", "-o", str(moves))
    assert code == 0, output
    plan = json.loads(output.splitlines()[-1])
    assert plan["objective"]["after"]["total"] < plan["objective"]["before"]["total"]
    assert {"moved_bytes", "overload_before", "overload_after", "home_training_rate", "collocation_rate"} <= plan.keys()
    assert plan["wall_s"] > 0
    assert plan["peak_rss_mib"] > 0
    with moves.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    homes = [row for row in rows if row["kind"] != "copy"]
    assert len(homes) == plan["moves"] > 0
    assert sum(int(row["bytes"]) for row in homes) == pytest.approx(plan["moved_bytes"], rel=1e-9)


def test_a_simulation_reads_the_homes_and_copies_that_a_plan_writes(warehouse: Path, tmp_path: Path) -> None:
    folder, file = tmp_path / "newest", tmp_path / "moves.csv"
    shutil.copytree(warehouse, folder)
    reads = parquet.read_table(folder / "reads.parquet")
    parquet.write_table(reads.append_column("newest_share", pa.array([0.25] * len(reads))), folder / "reads.parquet")
    code, output = run("plan", str(folder), "--partition-copies", "--no-disaster-copies", "-o", str(file))
    assert code == 0, output
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    moves = read_table_moves(file)
    assert [(move.table, move.target, move.moves_home) for move in moves] == [
        (row["table"], row["target"], row["kind"] != "copy") for row in rows
    ]
    assert {row["kind"] for row in rows} >= {"home", "copy"}
    assert {move.newest_share for move in moves} == {None, 0.25}
    assert all(move.newest_share is None for move in moves if move.moves_home)


def test_the_same_seed_makes_the_same_files(warehouse: Path, tmp_path: Path) -> None:
    assert run("generate", "--tables", "400", "--regions", "4", "--seed", "3", "-o", str(tmp_path / "again"))[0] == 0
    for file in sorted(warehouse.iterdir()):
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


def test_version_0_moves_nothing_and_a_quota_holds(warehouse: Path) -> None:
    code, output = run("plan", str(warehouse), "--version", "v0", "--json")
    assert code == 0
    plan = json.loads(output.splitlines()[-1])
    assert (plan["moves"], plan["objective"]["before"]) == (0, plan["objective"]["after"])
    code, output = run("plan", str(warehouse), "--quota-bytes", "1e12", "--links", "--json")
    assert code == 0
    assert 0 < json.loads(output.splitlines()[-1])["moved_bytes"] <= 1e12


def test_moves_are_explained_in_sentences(warehouse: Path) -> None:
    code, output = run("plan", str(warehouse), "--explain", "2")
    assert code == 0
    assert output.count(" better") >= 2
    code, output = run("explain", str(warehouse), "team000.table0000000")
    assert code == 0
    assert output.count("(home)") == 1
    assert "community team000: " in output
    code, output = run("explain", str(warehouse), "team000.table0000000", "--json")
    explained = json.loads(output.splitlines()[-1])
    assert explained["community"]["before"] == explained["community"]["after"]
    assert explained["community"]["largest_tables"][0].startswith("team000.")


def test_what_is_not_there_says_so(warehouse: Path, tmp_path: Path) -> None:
    code, output = run("plan", str(tmp_path / "nowhere"))
    assert code == ExitCode.USAGE
    assert "topmast data generate" in output
    code, output = run("explain", str(warehouse), "team000.tabel0000000")
    assert code == ExitCode.NOT_FOUND
    assert "did you mean team000.table0000000" in output
    code, output = run("explain", str(warehouse))
    assert code == ExitCode.USAGE
    assert "name one of" in output
    assert "{TABLE|DIR} [TABLE]" in run("explain", "--help")[1]
    assert run("plan", str(warehouse), "--solver", "magic")[0] == ExitCode.USAGE


def test_what_exceeds_a_limit_at_the_start_is_said_and_stays(tmp_path: Path) -> None:
    files = {
        "regions": "region,storage_bytes\neast,1000\nwest,100\n",
        "supply": "region,gpu_model,gpu_hours\n",
        "tables": "table,size_bytes,home\nbig,5000,east\nsmall,10,west\n",
        "jobs": "job\n",
        "reads": "job,table\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    for solver in ("hill_climbing", "late_acceptance", "joint", "milp"):
        code, output = run("plan", str(tmp_path), "--solver", solver)
        assert code == 0, output
        assert "limits exceeded at the start: 1; no move makes one worse; the first: east stores 5000 bytes" in output
        assert "nan" not in output


def test_an_exact_solver_that_is_stopped_at_once_has_no_bound(warehouse: Path) -> None:
    code, output = run("plan", str(warehouse), "--solver", "milp", "--time-limit", "0.001", "--json")
    assert code == 0, output
    plan = json.loads(output.splitlines()[-1])
    assert (plan["bound"], plan["finished"]) == (None, False)


def test_a_search_that_was_kept_goes_on_to_the_same_plan(warehouse: Path, tmp_path: Path) -> None:
    kept, plan = tmp_path / "search.npz", ("plan", str(warehouse), "--json")
    code, output = run(*plan, "--time-limit", "0.001", "--save", str(kept))
    assert code == 0, output
    assert not json.loads(output.splitlines()[-1])["finished"]
    code, output = run(*plan, "--resume", str(kept))
    assert code == 0, output
    whole = run(*plan)[1]
    resumed, undisturbed = (json.loads(each.splitlines()[-1]) for each in (output, whole))
    assert resumed["finished"]
    assert resumed["objective"] == undisturbed["objective"]
    code, output = run(*plan, "--resume", str(kept), "--quota-bytes", "5")
    assert code == ExitCode.REFUSED
    assert "limits or start differ" in output
    code, output = run(*plan, "--resume", str(warehouse / "tables.parquet"))
    assert code == ExitCode.USAGE
    assert "--save" in output
