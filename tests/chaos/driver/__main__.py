"""`python -m tests.chaos.driver --seed 1 --faults 200 --output result.json`: exit code 0 when every promise was kept."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from services.runtime.tier_place import TierProcesses
from tests.chaos.driver.faults import KINDS
from tests.chaos.driver.private_world import enter
from tests.chaos.driver.run import Options, Run


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos.driver", description="Faults by a seed, on a real service."
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--per-s", type=float, default=2.5, help="submissions in a second")
    parser.add_argument("--seconds", type=float, default=7_200.0, help="no fault after so long")
    parser.add_argument("--kind", action="append", default=[], choices=[kind.name for kind in KINDS], metavar="KIND")
    parser.add_argument("--shared", action="store_true", help="all tiers in one process")
    parser.add_argument("--standby", action="store_true", help="a second process of each tier stands by")
    parser.add_argument("--output", type=Path, help="where the result is written, as JSON")
    parser.add_argument("--folder", type=Path, help="where histories and lines of tasks are kept")
    arguments = parser.parse_args()
    is_private = enter(sys.argv[1:])
    tiers = TierProcesses.SHARED if arguments.shared else TierProcesses.SEPARATE
    options = Options(
        arguments.seed,
        arguments.faults,
        arguments.per_s,
        arguments.seconds,
        is_private,
        arguments.kind,
        tiers,
        arguments.standby,
    )
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="chaos-run-"))
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.chmod(0o755)
    result = Run(options, folder).run()
    document = {
        **result.as_json(),
        "command": f"python -m tests.chaos.driver --seed {options.seed} --faults {options.faults} --seconds {options.seconds:.0f}"
        + (" --standby" if options.standby else ""),
        "processors": os.cpu_count(),
    }
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(document, indent=1), encoding="utf-8")
    print(json.dumps(document["closing"], indent=1))
    return 1 if result.closing.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
