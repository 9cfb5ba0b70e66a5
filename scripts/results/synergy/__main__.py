"""Writes docs/results/synergy.md and its picture: `python -m scripts.results.synergy`.

Profiles and lists of jobs are in the folder that TOPMAST_TRACES names, else in ../shared/traces beside the checkout; without them
it says so and writes nothing. What is measured is kept in docs/results/synergy/figures.json; `--redraw` makes picture and
document from it without a run. Each run is written down when it has ended, so that `--resume` goes on after an interruption.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from scripts.results.side_by_side import run_side_by_side
from scripts.results.synergy.cases import Case, all_cases
from scripts.results.synergy.document import write_pages
from scripts.results.synergy.runs import ROOT, TRACE_FOLDER, missing_files, run_case
from scripts.results.written_down import WrittenDown

RESULTS = ROOT / "docs" / "results"
WRITTEN_DOWN = WrittenDown[Case](RESULTS / "synergy" / "runs.jsonl", run_case)


def main(arguments: Sequence[str]) -> None:
    """Runs everything and writes, or writes again what was run before."""
    parser = argparse.ArgumentParser(prog="python -m scripts.results.synergy", description=__doc__)
    parser.add_argument("--redraw", action="store_true", help="from the figures of the last run")
    parser.add_argument("--processes", type=int, default=2, help="runs side by side (2)")
    parser.add_argument("--resume", action="store_true", help="with the runs that an interrupted call has written down")
    given = parser.parse_args(arguments)
    kept = RESULTS / "synergy" / "figures.json"
    if given.redraw:
        if not kept.exists():
            sys.exit(f"{kept} is not there: run without --redraw first")
        write_pages(json.loads(kept.read_text()), RESULTS)
        return
    missing = missing_files()
    if missing:
        sys.exit(
            f"{missing[0].name} is not in {TRACE_FOLDER}: name the folder of the public traces with TOPMAST_TRACES"
        )
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not given.resume:
        WRITTEN_DOWN.forget()
    runs = run_side_by_side(WRITTEN_DOWN.run, all_cases(), given.processes)
    kept.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")
    write_pages(runs, RESULTS)
    WRITTEN_DOWN.forget()


if __name__ == "__main__":
    main(sys.argv[1:])
