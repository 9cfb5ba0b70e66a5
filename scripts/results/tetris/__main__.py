"""Writes docs/results/tetris.md: `python -m scripts.results.tetris`. All warehouses are generated, from fixed seeds.

What is measured is kept in docs/results/tetris/figures.json; `--redraw` makes the document from it without a run. Each run
is written down when it has ended, so that `--resume` goes on after an interruption. `--again SOLVER` runs only what a
changed solver takes part in; the figures of the other runs stay as they are.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.results.side_by_side import run_side_by_side
from scripts.results.tetris.document import write_page
from scripts.results.tetris.runs import Case, all_cases, run_case, takes_part
from scripts.results.written_down import WrittenDown

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
WRITTEN_DOWN = WrittenDown[Case](RESULTS / "tetris" / "runs.jsonl", run_case)


def main(arguments: Sequence[str]) -> None:
    """Runs everything and writes, or writes again what was run before."""
    parser = argparse.ArgumentParser(prog="python -m scripts.results.tetris", description=__doc__)
    parser.add_argument("--redraw", action="store_true", help="from the figures of the last run")
    parser.add_argument(
        "--processes", type=int, default=1, help="runs side by side (1); times are those of a busy machine"
    )
    parser.add_argument("--resume", action="store_true", help="with the runs that an interrupted call has written down")
    parser.add_argument("--again", metavar="SOLVER", help="only the runs in which this solver takes part")
    given = parser.parse_args(arguments)
    kept = RESULTS / "tetris" / "figures.json"
    if (given.redraw or given.again) and not kept.exists():
        sys.exit(f"{kept} is not there: run without --redraw and --again first")
    if given.redraw:
        write_page(json.loads(kept.read_text()), RESULTS)
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not given.resume:
        WRITTEN_DOWN.forget()
    if given.again:
        for case, run in zip(all_cases(), json.loads(kept.read_text()), strict=True):
            if not takes_part(case, given.again):
                WRITTEN_DOWN.add(case, run)
    runs = run_side_by_side(WRITTEN_DOWN.run, all_cases(), given.processes)
    kept.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")
    write_page(runs, RESULTS)
    WRITTEN_DOWN.forget()


if __name__ == "__main__":
    main(sys.argv[1:])
