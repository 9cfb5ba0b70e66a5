"""The document about Tiresias, made from small generated traces: all its parts are there."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from scripts.results.side_by_side import run_side_by_side
from scripts.results.tiresias import runs
from scripts.results.tiresias.cases import (
    HIGH_LOAD,
    MIDDLE_LOAD,
    POLICIES,
    TRACES,
    VARIANTS,
    VARIANTS_AT_HIGH_LOAD,
    Case,
)
from scripts.results.tiresias.document import write_pages
from scripts.results.tiresias.kept import KeptRun, find

CASES = (
    *(Case(trace, MIDDLE_LOAD, policy) for trace in TRACES for policy in POLICIES),
    *(Case("philly", MIDDLE_LOAD, variant) for variant in VARIANTS),
    *(Case("philly", HIGH_LOAD, variant) for variant in ("tiresias_las", "srtf", *VARIANTS_AT_HIGH_LOAD)),
)


def small_traces(folder: Path, count: int = 80) -> None:
    """Mostly short work and some long, in bursts."""
    for trace, window in TRACES.items():
        rng = np.random.default_rng(len(trace))
        with gzip.open(folder / window.file, "wt", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            head = ["job_id", "gpus", "submit_s", "duration_s", "clipped_at_48h"]
            philly = ["job_id", "virtual_cluster", "gpus", "submit_s", "duration_s", "source"]
            writer.writerow(philly if trace == "philly" else head)
            for number in range(count):
                submit_s = int(window.from_day * 86_400) + 60 * number
                duration_s = int(rng.choice([200, 4_000, 200_000], p=[0.7, 0.2, 0.1]))
                gpus = int(rng.choice([1, 2, 8], p=[0.6, 0.2, 0.2]))
                row = [f"j{number:06}", gpus, submit_s, duration_s, 0]
                writer.writerow([row[0], "vc", gpus, submit_s, duration_s, "P"] if trace == "philly" else row)


@pytest.mark.nightly
def test_everything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_traces(tmp_path)
    monkeypatch.setattr(runs, "TRACE_FOLDER", tmp_path)
    assert runs.missing_traces() == []
    runs._rows.cache_clear()
    measured = run_side_by_side(runs.run_case, CASES, processes=1)
    runs._rows.cache_clear()
    kept = [KeptRun(json.loads(json.dumps(run))) for run in measured]
    assert all(run.number("completed") == run.number("workloads") > 0 for run in kept)
    las = find(kept, "philly", MIDDLE_LOAD, POLICIES[0])
    assert las is not None
    assert las.jct_s("max") == las.quantiles_s[-1]
    write_pages(measured, tmp_path / "results")
    written = {path.name for path in (tmp_path / "results").rglob("*") if path.is_file()}
    assert written == {"tiresias.md", "completion-times.svg"}
    document = (tmp_path / "results" / "tiresias.md").read_text()
    assert "tiresias/completion-times.svg" in document
    assert all(variant in document for variant in VARIANTS)
