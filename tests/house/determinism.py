"""Run a piece of code in processes whose hash seeds differ, and compare what it prints (I12).

Strings hash differently from process to process unless PYTHONHASHSEED fixes it; whatever depends on the order of a
set, or of a dict that was filled from one, prints something else under another seed.
"""

import os
import subprocess
import sys
from collections.abc import Sequence

from tests.house.repository import ROOT

HASH_SEEDS = (0, 1)


def assert_same_output(snippet: str, arguments: Sequence[str] = ()) -> str:
    """Run `snippet` (Python source, imports included) once per hash seed; returns what every run printed.

    Fails when two runs print different bytes, when one exits with an error, and when nothing is printed: equal
    silence proves nothing. `arguments` are what the snippet finds in `sys.argv[1:]`.
    """
    outputs = [_run(snippet, arguments, seed) for seed in HASH_SEEDS]
    first = outputs[0]
    assert first.strip(), "the snippet printed nothing, so nothing was compared"
    for seed, output in zip(HASH_SEEDS[1:], outputs[1:], strict=True):
        assert output == first, f"PYTHONHASHSEED={seed} gives another output than PYTHONHASHSEED={HASH_SEEDS[0]}"
    return first


def _run(snippet: str, arguments: Sequence[str], hash_seed: int) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", snippet, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, f"exit code {finished.returncode} with hash seed {hash_seed}:\n{finished.stderr}"
    return finished.stdout
