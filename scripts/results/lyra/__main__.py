"""Writes docs/results/lyra.md: `python -m scripts.results.lyra`.

The traces are venus_jobs.csv.gz and inference_gpu_utilisation.csv in the folder that TOPMAST_TRACES names, else in ../shared/traces
beside the checkout; without them it says so and writes nothing. What is measured is kept in docs/results/lyra/figures.json;
`--redraw` makes the document from it without a run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from scripts.results.lyra.cases import all_cases
from scripts.results.lyra.document import document_of
from scripts.results.lyra.runs import ROOT, TRACE_FOLDER, missing_traces, run_case
from scripts.results.side_by_side import run_side_by_side

RESULTS = ROOT / "docs" / "results"


def main(arguments: Sequence[str]) -> None:
    """Runs everything and writes, or writes again what was run before."""
    parser = argparse.ArgumentParser(prog="python -m scripts.results.lyra", description=__doc__)
    parser.add_argument("--redraw", action="store_true", help="from the figures of the last run")
    parser.add_argument("--processes", type=int, default=2, help="runs side by side (2)")
    given = parser.parse_args(arguments)
    kept = RESULTS / "lyra" / "figures.json"
    if not given.redraw:
        missing = missing_traces()
        if missing:
            sys.exit(
                f"{missing[0].name} is not in {TRACE_FOLDER}: name the folder of the public traces with TOPMAST_TRACES"
            )
        runs = run_side_by_side(run_case, all_cases(), given.processes)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")
    elif not kept.exists():
        sys.exit(f"{kept} is not there: run without --redraw first")
    (RESULTS / "lyra.md").write_text(document_of(json.loads(kept.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
