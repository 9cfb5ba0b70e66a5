"""topmast report: figures and a page from event logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from formats.fleet_file import dump_fleet
from services.command_line.main import app
from tests.simulator.log_builder import FLEET
from tests.simulator.reference_run import legal_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two logs and their fleet."""
    (tmp_path / "fleet.yaml").write_text(dump_fleet(FLEET))
    for name, seed in (("one", 1), ("two", 2)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in legal_log(seed, 1_500)))
    return tmp_path


def report(folder: Path, *arguments: str) -> Result:
    fleet, out = folder / "fleet.yaml", folder / "report.html"
    return CliRunner().invoke(app, ["report", "--fleet", str(fleet), "--out", str(out), *arguments])


def test_a_log_becomes_a_table_and_a_page(folder: Path) -> None:
    result = report(folder, str(folder / "one.jsonl"), "--title", "A quiet day")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[0].split() == ["FIGURE", "ONE"]
    assert "completion time, mean" in result.stdout
    assert f"the page is in {folder / 'report.html'}" in result.stderr
    assert "<title>A quiet day</title>" in (folder / "report.html").read_text()


def test_several_logs_are_compared_with_the_first(folder: Path) -> None:
    logs = [str(folder / "one.jsonl"), str(folder / "two.jsonl")]
    result = report(
        folder,
        *logs,
        "--label",
        "before",
        "--label",
        "after",
        "--json",
        "--slo-s",
        *" --slo-s ".join("1234567").split(),
    )
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["report"] == str(folder / "report.html")
    assert [run["policy"] for run in answer["runs"]] == ["before", "after"]
    assert answer["runs"][0]["slo_limits_s"]["6"] == 7
    assert answer["comparison"]["baseline"] == "before"
    assert answer["comparison"]["pairs"][0]["workloads"] > 0


def test_logs_of_the_same_name_are_kept_apart_by_their_folders(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    (folder / "one.jsonl").rename(other / "two.jsonl")
    result = report(folder, str(folder / "two.jsonl"), str(other / "two.jsonl"), "--json")
    assert [run["policy"] for run in json.loads(result.stdout)["runs"]] == [f"{folder.name}/two", "other/two"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["none.jsonl"], 2, "there is no file"),
        (["one.jsonl", "--label", "a", "--label", "b"], 2, "1 event logs and 2 labels"),
        (["one.jsonl", "one.jsonl"], 2, "two runs are called"),
        (["one.jsonl", "--slo-s", "60"], 2, "must be 7 positive numbers"),
        (["one.jsonl", "--machine", "e9"], 2, "there is no machine 'e9'"),
        (["one.jsonl", "--window-from", "soon"], 2, "is no time"),
        (["fleet.yaml"], 4, "line 1: is not JSON"),
        (["empty.jsonl"], 4, "has 0 events and no workload"),
    ],
    ids=["file", "labels", "twice", "limits", "machine", "window", "no-log", "empty"],
)
def test_what_makes_no_sense_is_refused(folder: Path, arguments: list[str], code: int, sentence: str) -> None:
    (folder / "empty.jsonl").touch()
    files = [str(folder / word) if word.endswith((".jsonl", ".yaml")) else word for word in arguments]
    result = report(folder, *files)
    assert result.exit_code == code
    assert sentence in " ".join(result.stderr.replace("│", " ").split())
    assert not (folder / "report.html").exists()
