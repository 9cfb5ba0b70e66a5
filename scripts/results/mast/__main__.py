"""Writes docs/results/mast.md and its pictures: `python -m scripts.results.mast`. All runs one after the
other took 40 minutes on a busy machine; two side by side should take half of that.

The trace is itp_jobs.csv.gz in the folder that TOPMAST_TRACES names, else in ../shared/traces beside the checkout. What is
measured is kept in docs/results/mast/figures.json; `--redraw` makes pictures and document from it without a run. Each run is
written down when it has ended, so that `--resume` goes on after an interruption.
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
    parser.add_argument("--resume", action="store_true", help="with the runs that an interrupted call has written down")
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
    write_results(trace, RESULTS, all_cases(), given.processes, resume=given.resume)


if __name__ == "__main__":
    main(sys.argv[1:])
