"""Run benchmarks one after the other: ``python -m benchmarks [name ...]``; without names, all of them.

Each runs in a process of its own, so that its peak memory is its own.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).resolve().parent
_RUNNABLE: Final = 'if __name__ == "__main__":'


def main(names: Sequence[str]) -> int:
    """Run the named benchmarks, or all; returns 1 when one is unknown or one failed (the others still run)."""
    known = benchmark_names()
    unknown = [name for name in names if name not in known]
    if unknown or not known:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 1
    failed = [name for name in names or known if run(name) != 0]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def benchmark_names() -> tuple[str, ...]:
    """The modules of this folder that can be run, by name."""
    modules = sorted(path for path in _FOLDER.glob("[!_]*.py") if _RUNNABLE in path.read_text(encoding="utf-8"))
    return tuple(path.stem for path in modules)


def run(name: str) -> int:
    """Run one benchmark to its end; returns its exit code."""
    return subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], cwd=_FOLDER.parent, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
