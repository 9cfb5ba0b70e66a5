"""Writes docs/results/mast.md and its pictures: `python -m scripts.results.mast`, 13 minutes on two cores that
were not free.

The trace is itp_jobs.csv.gz in the folder that TOPMAST_TRACES names, else in ../shared/traces beside the checkout. What is
measured is kept in docs/results/mast/figures.json; `--redraw` makes pictures and document from it without a run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.results.mast.cases import all_cases
from scripts.results.mast.results import write_pages, write_results

ROOT = Path(__file__).resolve().parents[3]
TRACES = Path(os.environ.get("TOPMAST_TRACES", ROOT.parent / "shared" / "traces"))
TRACE = "itp_jobs.csv.gz"
RESULTS = ROOT / "docs" / "results"


def main(arguments: Sequence[str]) -> None:
    """Runs everything and writes, or writes again what was run before."""
    parser = argparse.ArgumentParser(prog="python -m scripts.results.mast", description=__doc__)
    parser.add_argument("--redraw", action="store_true", help="from the figures of the last run")
    parser.add_argument("--processes", type=int, default=2, help="runs side by side (2)")
    given = parser.parse_args(arguments)
    kept = RESULTS / "mast" / "figures.json"
    if given.redraw:
        if not kept.exists():
            sys.exit(f"{kept} is not there: run without --redraw first")
        write_pages(json.loads(kept.read_text()), RESULTS)
        return
    trace = TRACES / TRACE
    if not trace.exists():
        sys.exit(f"{TRACE} is not in {TRACES}: name the folder of the public traces with TOPMAST_TRACES")
    for case, _, wall_s in write_results(trace, RESULTS, all_cases(), given.processes):
        print(f"{case.experiment:9} load {case.load:g} {case.policy:13} {case.memory:9} {wall_s:7.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
