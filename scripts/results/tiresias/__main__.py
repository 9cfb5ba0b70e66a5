"""Writes docs/results/tiresias.md and its pictures: `python -m scripts.results.tiresias`.

The traces are philly_jobs.csv.gz and venus_jobs.csv.gz in the folder that TOPMAST_TRACES names, else in ../shared/traces beside
the checkout; without them it says so and writes nothing. What is measured is kept in docs/results/tiresias/figures.json;
`--redraw` makes pictures and document from it without a run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from scripts.results.side_by_side import run_side_by_side
from scripts.results.tiresias.cases import TRACES, all_cases
from scripts.results.tiresias.document import write_pages
from scripts.results.tiresias.runs import ROOT, TRACE_FOLDER, missing_traces, run_case

RESULTS = ROOT / "docs" / "results"


def main(arguments: Sequence[str]) -> None:
    """Runs everything and writes, or writes again what was run before."""
    parser = argparse.ArgumentParser(prog="python -m scripts.results.tiresias", description=__doc__)
    parser.add_argument("--redraw", action="store_true", help="from the figures of the last run")
    parser.add_argument("--processes", type=int, default=2, help="runs side by side (2)")
    given = parser.parse_args(arguments)
    kept = RESULTS / "tiresias" / "figures.json"
    if given.redraw:
        if not kept.exists():
            sys.exit(f"{kept} is not there: run without --redraw first")
        write_pages(json.loads(kept.read_text()), RESULTS)
        return
    missing = missing_traces()
    if missing:
        sys.exit(
            f"{missing[0].name} is not in {TRACE_FOLDER}: name the folder of the public traces with TOPMAST_TRACES"
        )
    runs = run_side_by_side(run_case, all_cases(tuple(TRACES)), given.processes)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")
    write_pages(runs, RESULTS)


if __name__ == "__main__":
    main(sys.argv[1:])
