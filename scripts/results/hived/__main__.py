"""Writes docs/results/hived.md and its pictures: `python -m scripts.results.hived`.

The trace is philly_jobs.csv.gz in the folder that TOPMAST_TRACES names, else in ../shared/traces beside the checkout; without it it says
so and writes nothing. What is measured is kept in docs/results/hived/figures.json; `--redraw` makes pictures and document from it
without a run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence

from domain.events import JsonValue
from scripts.results.hived.cases import all_cases
from scripts.results.hived.document import write_pages
from scripts.results.hived.runs import ROOT, TRACE, TRACE_FOLDER, run_case
from scripts.results.side_by_side import run_side_by_side

RESULTS = ROOT / "docs" / "results"


def main(arguments: Sequence[str]) -> None:
    """Runs everything and writes, or writes again what was run before."""
    parser = argparse.ArgumentParser(prog="python -m scripts.results.hived", description=__doc__)
    parser.add_argument("--redraw", action="store_true", help="from the figures of the last run")
    parser.add_argument("--processes", type=int, default=2, help="runs side by side (2)")
    given = parser.parse_args(arguments)
    kept = RESULTS / "hived" / "figures.json"
    if given.redraw:
        if not kept.exists():
            sys.exit(f"{kept} is not there: run without --redraw first")
        figures = json.loads(kept.read_text())
        write_pages(figures["runs"], figures["scale"], RESULTS)
        return
    if not (TRACE_FOLDER / TRACE).exists():
        sys.exit(f"{TRACE} is not in {TRACE_FOLDER}: name the folder of the public traces with TOPMAST_TRACES")
    runs = run_side_by_side(run_case, all_cases(), given.processes)
    scale = measured_at_scale()
    kept.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(run) for run in runs)
    kept.write_text(f'{{"scale": {json.dumps(scale)},\n"runs": [\n{lines}\n]}}\n')
    write_pages(runs, scale, RESULTS)


def measured_at_scale() -> list[dict[str, JsonValue]]:
    """What `python -m benchmarks.cells` prints: cells at 65,536 GPUs. Its times are of this machine."""
    command = [sys.executable, "-m", "benchmarks.cells"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in printed.splitlines()]


if __name__ == "__main__":
    main(sys.argv[1:])
