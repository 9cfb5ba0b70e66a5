"""Writes docs/reliability.md: `python -m scripts.results.reliability --seed 1 --faults 200`. All of it is from one run of the chaos driver.

What the run found is kept in docs/results/reliability/run.json; `--redraw` makes the page from it without a run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scripts.results.reliability.document import document_of

DOCS = Path(__file__).resolve().parents[3] / "docs"


def main(arguments: Sequence[str]) -> None:
    """Runs and writes, or writes again what was run before. A run that found something wrong is written too, and fails."""
    parser = argparse.ArgumentParser(prog="python -m scripts.results.reliability", description=__doc__)
    parser.add_argument("--redraw", action="store_true", help="from the last run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--standby", action="store_true", help="with a second process of each tier that stands by")
    given = parser.parse_args(arguments)
    kept = DOCS / "results" / "reliability" / "run.json"
    code = 0
    if not given.redraw:
        options = ["--seed", str(given.seed), "--faults", str(given.faults), "--output", str(kept)]
        if given.standby:
            options.append("--standby")
        code = subprocess.run([sys.executable, "-m", "tests.chaos.driver", *options], check=False).returncode
    elif not kept.exists():
        sys.exit(f"{kept} is not there: run without --redraw first")
    (DOCS / "reliability.md").write_text(document_of(json.loads(kept.read_text(encoding="utf-8"))), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
