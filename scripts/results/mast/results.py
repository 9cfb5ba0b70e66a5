"""From runs to files: figures.json first, then pictures and document, which are made from it alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from domain.events import JsonValue
from scripts.results.mast.cases import (
    DAY_S,
    LOADS,
    Case,
    busiest_days,
    fleet_for,
    given_for,
    too_large_at_home,
)
from scripts.results.mast.document import document_of
from scripts.results.mast.kept import runs_of
from scripts.results.mast.pictures import draw_all
from scripts.results.mast.quotas import backed_by, gpus_of_quota, larger_than_quota
from scripts.results.mast.runs import rows_of_trace, run_from_file
from scripts.results.side_by_side import run_side_by_side
from scripts.results.written_down import WrittenDown
from simulator.inputs.fleets import gpus_of_regions

Figures = dict[str, JsonValue]


def write_results(trace: Path, folder: Path, cases: Sequence[Case], processes: int, *, resume: bool = False) -> None:
    """Runs the cases and writes all files. When a run fails, those that had ended are written down for `resume`."""
    written = WrittenDown[Case](folder / "mast" / "runs.jsonl", partial(run_from_file, trace))
    if not resume:
        written.forget()
    setup = setup_of(trace)
    runs: list[JsonValue] = [*run_side_by_side(written.run, cases, processes)]
    figures: Figures = {"setup": setup, "runs": runs}
    (folder / "mast" / "figures.json").write_text(_as_text(setup, runs))
    written.forget()
    write_pages(figures, folder)


def setup_of(trace: Path) -> JsonValue:
    """What the runs are given, in numbers."""
    rows = rows_of_trace(trace)
    from_s, until_s = busiest_days(rows)
    loads: dict[str, JsonValue] = {}
    for load in LOADS:
        fleet = fleet_for(rows, load)
        sizes = gpus_of_regions(fleet)
        given = given_for(rows, Case("anywhere", load, "mast"))
        gpu_s = sum(row.gpus * row.duration_s for row in rows)
        span_s = max(row.submit_s for row in rows) - min(row.submit_s for row in rows)
        gpus = sum(size for _, size in sizes)
        loads[f"{load:g}"] = {
            "regions": {str(name): size for name, size in sizes},
            "gpus": gpus,
            "load": round(gpu_s / max(span_s, 1.0) / gpus, 3),
            "quota_gpus": sum(map(gpus_of_quota, given.tenants)),
            "tenants": len(given.tenants),
            "larger_than_backed_quota": larger_than_quota(rows, backed_by(gpus, given.tenants)),
            "too_large_at_home": too_large_at_home(rows, fleet),
        }
    with_data = given_for(rows, Case("tables", 1.0, "mast"))
    return {
        "workloads": len(rows),
        "loads": loads,
        "window_days": [round(from_s / DAY_S), round(until_s / DAY_S)],
        "window_workloads": sum(from_s <= row.submit_s < until_s for row in rows),
        "tables": len(with_data.catalog),
        "fit_nowhere_with_data": len(rows) - len(with_data.rows),
    }


def write_pages(figures: Figures, folder: Path) -> None:
    """Pictures and document."""
    pictures = folder / "mast"
    pictures.mkdir(parents=True, exist_ok=True)
    runs = runs_of(figures)
    draw_all(runs, pictures)
    (folder / "mast.md").write_text(document_of(cast(Mapping[str, JsonValue], figures["setup"]), runs))


def _as_text(setup: JsonValue, runs: Sequence[JsonValue]) -> str:
    """One line for each run, so that differences can be read."""
    lines = ",\n".join(json.dumps(run) for run in runs)
    return f'{{"setup": {json.dumps(setup)},\n"runs": [\n{lines}\n]}}\n'
