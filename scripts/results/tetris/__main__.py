"""Writes docs/results/tetris.md: `python -m scripts.results.tetris`. All warehouses are generated, from fixed seeds.

What is measured is kept in docs/results/tetris/figures.json; `--redraw` makes the document from it without a run. Each run
is written down when it has ended, so that `--resume` goes on after an interruption.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from domain.events import JsonValue
from scripts.results.side_by_side import run_side_by_side
from scripts.results.tetris.document import write_page
from scripts.results.tetris.runs import Case, all_cases, run_case

RESULTS = Path(__file__).resolve().parents[3] / "docs" / "results"
WRITTEN_DOWN = RESULTS / "tetris" / "runs.jsonl"
"""Runs that have ended, of a call that has not."""


def main(arguments: Sequence[str]) -> None:
    """Runs everything and writes, or writes again what was run before."""
    parser = argparse.ArgumentParser(prog="python -m scripts.results.tetris", description=__doc__)
    parser.add_argument("--redraw", action="store_true", help="from the figures of the last run")
    parser.add_argument(
        "--processes", type=int, default=1, help="runs side by side (1); times are those of a busy machine"
    )
    parser.add_argument("--resume", action="store_true", help="with the runs that an interrupted call has written down")
    given = parser.parse_args(arguments)
    kept = RESULTS / "tetris" / "figures.json"
    if given.redraw:
        if not kept.exists():
            sys.exit(f"{kept} is not there: run without --redraw first")
        write_page(json.loads(kept.read_text()), RESULTS)
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not given.resume:
        WRITTEN_DOWN.unlink(missing_ok=True)
    runs = run_side_by_side(run_once, all_cases(), given.processes)
    kept.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")
    write_page(runs, RESULTS)
    WRITTEN_DOWN.unlink(missing_ok=True)


def run_once(case: Case) -> dict[str, JsonValue]:
    """The run as it was written down, else run now and written down."""
    wanted = {"case": type(case).__name__, **asdict(case)}
    lines = WRITTEN_DOWN.read_text().splitlines() if WRITTEN_DOWN.exists() else []
    for run in map(json.loads, lines):
        if run["of"] == wanted:
            return dict(run["run"])
    measured = run_case(case)
    with WRITTEN_DOWN.open("a") as file:
        # One call: lines of two processes do not mix.
        file.write(json.dumps({"of": wanted, "run": measured}) + "\n")
    return measured


if __name__ == "__main__":
    main(sys.argv[1:])
