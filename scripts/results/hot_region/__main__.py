"""Writes docs/results/hot-region.md: `python -m scripts.results.hot_region`. All is generated, from fixed seeds.

What is measured is kept in docs/results/hot-region/figures.json; `--redraw` makes the document from it without a run. Each run
is written down when it has ended, so that `--resume` goes on after an interruption.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.results.hot_region.cases import Case, all_cases
from scripts.results.hot_region.document import document_of
from scripts.results.hot_region.measures import run_case
from scripts.results.side_by_side import run_side_by_side
from scripts.results.written_down import WrittenDown

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
WRITTEN_DOWN = WrittenDown[Case](RESULTS / "hot-region" / "runs.jsonl", run_case)


def main(arguments: Sequence[str]) -> None:
    """Runs everything and writes, or writes again what was run before."""
    parser = argparse.ArgumentParser(prog="python -m scripts.results.hot_region", description=__doc__)
    parser.add_argument("--redraw", action="store_true", help="from the figures of the last run")
    parser.add_argument("--processes", type=int, default=2, help="runs side by side (2)")
    parser.add_argument("--resume", action="store_true", help="with the runs that an interrupted call has written down")
    given = parser.parse_args(arguments)
    kept = RESULTS / "hot-region" / "figures.json"
    if not given.redraw:
        if not given.resume:
            WRITTEN_DOWN.forget()
        runs = run_side_by_side(WRITTEN_DOWN.run, all_cases(), given.processes)
        kept.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")
        WRITTEN_DOWN.forget()
    elif not kept.exists():
        sys.exit(f"{kept} is not there: run without --redraw first")
    (RESULTS / "hot-region.md").write_text(document_of(json.loads(kept.read_text())))


if __name__ == "__main__":
    main(sys.argv[1:])
