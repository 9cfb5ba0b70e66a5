"""topmast compare: the same figures as single runs, whatever the processes; what is finished when it is interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from formats.trace import write_trace
from services.command_line.commands.compare import parse_seeds
from tests.simulation.conftest import FLEET, MEASURED, good, topmast
from tests.simulator.inputs.rows import random_rows
from tests.simulator.results.test_results_page import documented_keys


def without_measured(text: str) -> dict[str, object]:
    printed = json.loads(text)
    for run in printed["runs"]:
        for key in MEASURED:
            assert run.pop(key) > 0
    assert isinstance(printed, dict)
    return printed


def test_runs_in_processes_are_those_of_single_commands(trace: Path, tmp_path: Path) -> None:
    given = ("--trace", trace, "--gpus", "128", "--regions", "2", "--synthesize-tables", "--no-cache", "--json")
    page = tmp_path / "compared.html"
    arguments = ("compare", *given, "--policies", "fifo,random_region", "--seeds", "1..2", "--report", page)
    first = good(*arguments, "--jobs", "2")
    printed = without_measured(first.stdout)
    assert printed == without_measured(good(*arguments, "--jobs", "1").stdout)
    assert set(printed) == documented_keys("### Of several runs")
    runs = printed["runs"]
    assert isinstance(runs, list)
    assert [(run["policy"], run["seed"]) for run in runs] == [
        ("fifo", 1), ("fifo", 2), ("random_region", 1), ("random_region", 2)
    ]  # fmt: skip
    for run in (runs[0], runs[3]):
        single = json.loads(good("simulate", *given, "--policy", run["policy"], "--seed", run["seed"]).stdout)
        assert {key: single[key] for key in run} == run
    assert runs[2]["jct_s"] != runs[3]["jct_s"]
    comparison = printed["comparison"]
    assert isinstance(comparison, dict)
    assert comparison["pairs"][0]["seeds"] == [1, 2]
    assert comparison["pairs"][0]["workloads"] > 0
    assert "fifo, seed 1" in page.read_text()
    assert "done, 4 of 4 runs" in first.stderr


def test_a_table_shows_who_won(trace: Path) -> None:
    arguments = ("compare", "--trace", trace, *FLEET, "--policies", "fifo,srtf", "--jobs", "1")
    result = good(*arguments)
    figures, pairs = result.stdout.split("\n\n")
    assert figures.splitlines()[0].split() == ["FIGURE", "FIFO", "SRTF"]
    assert pairs.splitlines()[0].startswith("AGAINST FIFO")
    assert pairs.splitlines()[1].split()[:2] == ["srtf", "300"]
    again = good(*arguments)
    assert again.stdout == result.stdout
    assert "srtf, seed 1: this run was made before and comes from the cache" in again.stderr


def test_an_interrupted_comparison_reports_the_finished_runs(tmp_path: Path) -> None:
    trace = tmp_path / "long.csv"
    write_trace(trace, random_rows(5_000))
    given = ("--trace", trace, "--gpus", "1024", "--json")
    good("compare", *given, "--policies", "fifo,sf")
    main = (sys.executable, "-c", "from services.command_line.main import main; main()")
    command: list[str | Path] = [*main, "compare", *given, "--policies", "fifo,sf,gandiva", "--jobs", "1"]
    # A group of its own, as a terminal's: all of its processes hear the signal.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stderr is not None
        assert any(re.match(r"gandiva, seed 1: \d% of 5,000 workloads ended", line) for line in running.stderr)
        os.killpg(running.pid, signal.SIGINT)
        stdout, stderr = running.communicate()
    assert running.returncode == 130, stderr
    assert "interrupted: 1 run of 3 not finished and left out: gandiva (seed 1)" in stderr
    assert "Traceback" not in stderr
    printed = json.loads(stdout)
    assert [run["policy"] for run in printed["runs"]] == printed["comparison"]["policies"] == ["fifo", "sf"]
    assert printed["missing"] == [{"policy": "gandiva", "seed": 1}]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--policies", "fifo,msat"], 4, "--policies: msat: is no policy; did you mean mast"),
        (["--policies", "fifo"], 2, "name at least two policies"),
        (["--policies", "fifo,mast,fifo"], 2, "fifo is there twice"),
        (["--policies", "fifo,mast", "--seeds", "5..1"], 2, "'5..1' is no seed; write 1..5 or 1,2,7"),
    ],
    ids=["unknown", "one", "twice", "seeds"],
)
def test_what_makes_no_sense_is_refused(trace: Path, arguments: list[str], code: int, sentence: str) -> None:
    result = topmast("compare", "--trace", trace, *FLEET, *arguments)
    assert result.exit_code == code, result.output
    assert sentence in " ".join(result.stderr.replace("│", " ").split())


def test_seeds_that_change_nothing_are_reported(trace: Path) -> None:
    arguments = ("compare", "--trace", trace, *FLEET, "--policies", "fifo,sf", "--seeds", "1,2", "--jobs", "1")
    sentence = "all seeds gave the same runs: nothing here is drawn from them"
    assert sentence in good(*arguments).stderr
    assert sentence not in good(*arguments, "--regions", "2", "--synthesize-tables").stderr


def test_seeds_are_ranges_and_lists() -> None:
    assert parse_seeds("1..3") == (1, 2, 3)
    assert parse_seeds("7, 1..2,7") == (7, 1, 2)
    for text in ("", "1..", "-1", "1.5", "1..1000000", "a"):
        with pytest.raises(typer.BadParameter):
            parse_seeds(text)
