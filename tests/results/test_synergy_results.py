"""The document about Synergy, made from few jobs: all its parts are there."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from formats.profiles_file import write_profiles
from scripts.results.side_by_side import run_side_by_side
from scripts.results.synergy import runs
from scripts.results.synergy.cases import (
    DERIVED_MULTI,
    DERIVED_SINGLE,
    DRF,
    LIST_SINGLE,
    MECHANISMS,
    PHILLY,
    PROPORTIONAL,
    SENSITIVE,
    STATIC_LOAD,
    TETRIS,
    TUNE,
    Case,
    Monitored,
    all_cases,
)
from scripts.results.synergy.derived_trace import derived_rows
from scripts.results.synergy.document import write_pages
from scripts.results.synergy.kept import KeptRun, find
from simulator.inputs.models import MODELS_OF_TASKS, ModelSplit
from tests.simulator.engine.profiled_run import HUNGRY, LEAN

MODELS = [model for models in MODELS_OF_TASKS.values() for model in models]
CASES = (
    *(Case(DERIVED_SINGLE, 9.0, policy) for policy in MECHANISMS),
    *(Case(trace, 0.0, policy) for trace in (LIST_SINGLE, PHILLY) for policy in (PROPORTIONAL, TUNE)),
    *(Case(DERIVED_MULTI, STATIC_LOAD, policy, "fifo", SENSITIVE) for policy in (DRF, TETRIS, TUNE, PROPORTIONAL)),
)


def small_files(folder: Path, count: int = 60) -> None:
    """Profiles of two kinds, an authors' list and a piece of Philly."""
    language = MODELS_OF_TASKS["language"]
    write_profiles(folder / runs.PROFILES_FILE, {model: LEAN if model in language else HUNGRY for model in MODELS})
    rng = np.random.default_rng(3)
    heads = {
        LIST_SINGLE: ("job_id", "arrival", "gpus", "duration_fair_s", "cpu_demand", "mem_demand_gb", "model"),
        PHILLY: ("job_id", "virtual_cluster", "gpus", "submit_s", "duration_s", "source"),
    }
    for trace, head in heads.items():
        (folder / runs.FILES[trace]).parent.mkdir(exist_ok=True)
        with gzip.open(folder / runs.FILES[trace], "wt", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(head)
            for number in range(count):
                duration_s = int(rng.integers(600, 90_000))
                if trace == PHILLY:
                    writer.writerow([f"j{number}", "vc", 2, runs.PHILLY_FROM_S + 60 * number, duration_s, "P"])
                else:
                    writer.writerow([number, 60 * number, 1, duration_s, 1, 20, MODELS[number % len(MODELS)]])


def test_everything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(tmp_path)
    monkeypatch.setattr(runs, "TRACE_FOLDER", tmp_path)
    monkeypatch.setattr(runs, "EARLY", Monitored(5, 20))
    monkeypatch.setattr(runs, "STEADY", Monitored(10, 40))
    monkeypatch.setattr(runs, "ROWS", 60)
    runs.profiles.cache_clear()
    runs.rows_of_file.cache_clear()
    measured = run_side_by_side(runs.run_case, CASES, processes=1)
    runs.profiles.cache_clear()
    runs.rows_of_file.cache_clear()
    kept = [KeptRun(json.loads(json.dumps(run))) for run in measured]
    assert all(run.number("unfinished") == 0 for run in kept)
    even, tuned = (find(kept, Case(DERIVED_SINGLE, 9.0, policy)) for policy in (PROPORTIONAL, TUNE))
    assert even is not None
    assert tuned is not None
    assert even.number("speed") == pytest.approx(1.0)
    assert tuned.number("speed") > 1.0
    write_pages(measured, tmp_path / "results")
    written = {path.name for path in (tmp_path / "results").rglob("*") if path.is_file()}
    assert written == {"synergy.md", "load.svg"}
    assert "synergy/load.svg" in (tmp_path / "results" / "synergy.md").read_text()


def test_a_case_is_run_once() -> None:
    cases = all_cases()
    assert len(set(cases)) == len(cases)


def test_derived_traces_differ_between_loads_by_their_arrivals_only() -> None:
    split = ModelSplit(20, 70, 10)
    slow, fast = (derived_rows(200, load, split, MODELS, multi=True, seed=1) for load in (3.0, 6.0))
    assert [row.duration_s for row in slow] == [row.duration_s for row in fast]
    assert [row.model for row in slow] == [row.model for row in fast]
    assert [row.submit_s for row in slow] == pytest.approx([2 * row.submit_s for row in fast])
    minutes = np.array([row.duration_s / 60 for row in slow])
    assert minutes.min() >= 10**1.5
    assert minutes.max() <= 10**4
    assert 0.1 < (minutes > 1000).mean() < 0.3
