"""The document about HiveD, made from a small generated trace: its parts are there, and nobody waits longer than alone."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from domain.events import JsonValue
from scripts.results.hived import runs
from scripts.results.hived.cases import DECLARED, FROM_DAY, HIVED, MULTI_LEVEL, PRIVATE, QUOTA, SIZES, STATIC, Case
from scripts.results.hived.document import write_pages
from scripts.results.hived.kept import KeptRun
from scripts.results.side_by_side import run_side_by_side

DAY_S = 86_400.0
CASES = (
    Case("overloaded", "tiresias_las", DECLARED, instant=True),
    *(Case("overloaded", "fifo", arm) for arm in (DECLARED, STATIC, MULTI_LEVEL, PRIVATE, QUOTA, HIVED)),
)


def small_trace(folder: Path, count: int = 260) -> None:
    """Four tenants on two days, long work, so that 93 machines are not enough."""
    rng = np.random.default_rng(6)
    with gzip.open(folder / runs.TRACE, "wt", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["job_id", "virtual_cluster", "gpus", "submit_s", "duration_s", "source"])
        for number in range(count):
            submit_s = int((FROM_DAY + 2 * number / count) * DAY_S)
            gpus = int(rng.choice([1, 2, 4, 8, 16, 32], p=[0.3, 0.1, 0.1, 0.25, 0.15, 0.1]))
            writer.writerow(
                [f"p{number:06}", f"vc{rng.integers(4)}", gpus, submit_s, int(rng.integers(30_000, 200_000)), "P"]
            )


@pytest.mark.nightly
def test_everything_is_written_and_sharing_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_trace(tmp_path)
    monkeypatch.setattr(runs, "TRACE_FOLDER", tmp_path)
    runs._rows.cache_clear()
    measured = run_side_by_side(runs.run_case, CASES, processes=1)
    runs._rows.cache_clear()
    kept = [KeptRun(json.loads(json.dumps(run))) for run in measured]
    safe = kept[0]
    assert safe.against("guaranteed") > 100
    assert (safe.against("later"), safe.excess_s("max")) == (0, 0.0)
    dynamic, static, levels = kept[1:4]
    assert static.number("opportunistic_preempted_gpus") > dynamic.number("opportunistic_preempted_gpus")
    assert len(levels.fragmentation("used")) == len(dynamic.fragmentation("used")) == 4 * 24
    scale: list[dict[str, JsonValue]] = [
        {"benchmark": "cell_allocation", "count": 1, "processor_mean_s": 1e-6, "processor_p99_s": 1e-6, "budget": ""}
    ]
    write_pages(measured, scale, tmp_path / "results")
    written = {path.name for path in (tmp_path / "results").rglob("*") if path.is_file()}
    assert written == {"hived.md", "queueing.svg", "queueing-over-time.svg", "fragmentation.svg"}
    document = (tmp_path / "results" / "hived.md").read_text()
    assert all(f"hived/{name}" in document for name in written if name.endswith(".svg"))
    assert f"overloaded: {SIZES['overloaded']:,} GPUs" in document
