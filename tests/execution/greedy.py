"""A task that holds memory: `python greedy.py HOW MEBIBYTES`. It prints a line when it has it, and sleeps.

alone: by itself; children: in two processes that it starts, half each; forks: once, shared with four forks, which only read it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def main(how: str, mebibytes: int) -> None:
    if how == "children":
        half = [sys.executable, __file__, "alone", str(mebibytes // 2)]
        children = [subprocess.Popen(half) for _ in range(2)]
        for child in children:
            child.wait()
        return
    held = b"x" * (mebibytes * 2**20)
    if how == "forks":
        for _ in range(4):
            if os.fork() == 0:
                time.sleep(3600)
    score = Path("/proc/self/oom_score_adj").read_text().strip()
    print(f"holds {len(held) >> 20} MiB, score {score}", flush=True)
    time.sleep(3600)


main(sys.argv[1], int(sys.argv[2]))
