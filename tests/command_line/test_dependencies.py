"""--after, graphs of workloads from one file, and topmast tree, against a service that answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.command_line.exit_code import ExitCode
from services.command_line.graph_view import tree_lines
from tests.command_line.conftest import Topmast
from tests.global_scheduler_service.service import service_in_background
from topmast import GraphWorkload, WorkloadGraph, WorkloadState

RUN = ("run", "--tenant", "ads", "--gpus", "1", "--emulate-s", "60")

GRAPH = """\
name: prepare
tenant: ads
jobs: [{name: main, resources: {gpus: 1}, emulated: {duration_s: 60}}]
---
name: train
tenant: ads
jobs: [{name: main, resources: {gpus: 1}, emulated: {duration_s: 60}}]
after: ["ok:prepare"]
---
name: report
tenant: ads
jobs: [{name: main, resources: {gpus: 1}, emulated: {duration_s: 60}}]
after:
  - any:train
  - ok:prepare
"""


@pytest.fixture
def topmast(database_url: str) -> Iterator[Topmast]:
    """A global scheduler without regions: what is submitted waits."""
    with service_in_background(database_url) as address:
        yield Topmast({"TOPMAST_ADDRESS": address, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def names_in(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("w") and " " not in line]


def test_a_graph_of_a_file_is_shown_as_a_tree_and_ends_with_its_head(topmast: Topmast, tmp_path: Path) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(GRAPH)
    done = topmast("submit", "-f", str(file))
    assert done.exit_code == ExitCode.OK, done.stderr
    prepare, train, report = names_in(done.stdout)
    assert topmast("tree", train).stdout.splitlines()[-4:] == [
        f"{prepare} (prepare) PENDING",
        f"├── {train} (train) PENDING after ok:prepare <",
        f"│   └── {report} (report) PENDING after any:train, ok:prepare",
        f"└── {report} (report) PENDING after any:train, ok:prepare",
    ]
    shown = topmast("get", train).stdout
    assert f"waits for ok:{prepare} (pending)" in shown
    assert f"ok:{prepare} (prepare), PENDING" in shown
    assert f"waits for ok:{prepare} (pending)" in topmast("list").stdout
    mail = names_in(topmast(*RUN, "--after", f"ok:{train},failed:{report}").stdout)[-1]
    told = json.loads(topmast("get", mail, "--json").stdout.splitlines()[-1])
    assert [(one["condition"], one["workload"]) for one in told["waits_for"]] == [("ok", train), ("failed", report)]
    refused = topmast("release", mail)
    assert refused.exit_code != ExitCode.OK
    assert "which a release does not pass over" in refused.stderr
    assert topmast("cancel", prepare).exit_code == ExitCode.OK
    assert (
        topmast("run", "--tenant", "ads", "--gpus", "1", "--emulate-s", "60", "--after", f"any:{prepare}").exit_code
        == 0
    )
    topmast("watch", mail)
    assert f"ok:{train} can never be: it was cancelled" in topmast("get", mail).stdout


@pytest.mark.parametrize(
    ("wrong", "instead", "line", "words"),
    [
        ('["ok:prepare"]', '["ok:report"]', 8, "nothing could ever start: train after report after train"),
        ("any:train", "any:trian", 14, "has no workload trian, and none of that name is submitted with it"),
        ("any:train", "train", 14, "say what is to become of it: ok:ID, failed:ID or any:ID"),
        ("any:train", "done:train", 14, "it must begin with one of ok, failed, any"),
    ],
)
def test_a_graph_that_cannot_be_is_refused_by_its_line(
    topmast: Topmast, tmp_path: Path, wrong: str, instead: str, line: int, words: str
) -> None:
    file = tmp_path / "graph.yaml"
    file.write_text(GRAPH.replace(wrong, instead))
    for options in ((), ("--dry-run",)):
        refused = topmast("submit", "-f", str(file), *options)
        assert refused.exit_code != ExitCode.OK
        said = " ".join(refused.stderr.split())
        assert f"line {line}, after" in said
        assert words in said
    assert "none" in topmast("list").stdout


def test_a_dependency_that_cannot_be_is_told_by_the_option(topmast: Topmast) -> None:
    for said, words in (("ok:w-none", "has no workload w-none"), ("w-1", "ok:ID, failed:ID or any:ID")):
        refused = topmast(*RUN, "--after", said)
        assert refused.exit_code != ExitCode.OK
        assert "--after" in refused.stderr
        assert words in " ".join(refused.stderr.split())


def test_a_chain_of_a_thousand_is_a_tree_as_deep() -> None:
    chain = [
        GraphWorkload(f"w{number}", "n", WorkloadState.PENDING, (f"ok:w{number - 1}",) if number else ())
        for number in range(1_000)
    ]
    lines = list(tree_lines(WorkloadGraph(tuple(chain)), "w999"))
    assert len(lines) == len(chain)
    assert lines[-1].endswith("w999 (n) PENDING after ok:n <")
