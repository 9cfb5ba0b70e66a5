"""From runs to files: figures.json first, then pictures and document, which are made from it alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
from scripts.results.mast.runs import Measured, rows_of_trace, run_all
from simulator.inputs.fleets import gpus_of_regions

Figures = dict[str, JsonValue]


def write_results(trace: Path, folder: Path, cases: Sequence[Case], processes: int) -> list[Measured]:
    """Runs the cases and writes all files; returns what was measured. Nothing is written when a run fails."""
    setup = setup_of(trace)
    measured = run_all(trace, cases, processes)
    runs: list[JsonValue] = [measures for _, measures, _ in measured]
    figures: Figures = {"setup": setup, "runs": runs}
    (folder / "mast").mkdir(parents=True, exist_ok=True)
    (folder / "mast" / "figures.json").write_text(_as_text(setup, runs))
    write_pages(figures, folder)
    return measured


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
            "quota_gpus": sum(amount for tenant in given.tenants for _, amount in tenant.quota.gpus),
            "tenants": len(given.tenants),
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
