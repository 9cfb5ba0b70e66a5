"""Starts several processes in one task, as torchrun and the launcher of DeepSpeed do on each node; needs the standard library alone.

    python start_processes.py --processes 8 -- python train.py

Each gets RANK and WORLD_SIZE among all processes of all tasks of the job, LOCAL_RANK and LOCAL_WORLD_SIZE among those of this task, and
MASTER_ADDR and MASTER_PORT as the task has them. All see the GPUs of the task: process n takes the n-th. When one fails, the others are
stopped, and its exit code is that of the task. A signal to stop goes to all of them.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType

GRACE_S = 10.0
"""To end after another process has failed. Who is asked to stop by Topmast has the grace of the workload."""

LOOK_EVERY_S = 0.05


def environment_of(process: int, processes: int) -> dict[str, str]:
    """The environment of one of the processes of this task."""
    task, tasks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    return os.environ | {
        "RANK": str(task * processes + process),
        "WORLD_SIZE": str(tasks * processes),
        "LOCAL_RANK": str(process),
        "LOCAL_WORLD_SIZE": str(processes),
        "NODE_RANK": str(task),
    }


def run(command: Sequence[str], processes: int) -> int:
    """The exit code of the first one that failed; 0 when all ended well."""
    children: list[subprocess.Popen[bytes]] = []
    asked: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        for child in children:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    while len(children) < processes and not asked:
        children.append(subprocess.Popen(command, env=environment_of(len(children), processes)))
    if asked:  # some may have been started after it was passed on
        end(children)
        return 128 + asked[0]
    running = list(children)
    while running:
        time.sleep(LOOK_EVERY_S)
        failed = next((child.returncode for child in running if child.poll() not in {None, 0}), 0)
        if failed:
            end(children)
            return failed if failed > 0 else 128 - failed
        running = [child for child in running if child.returncode is None]
    return 0


def end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends those that are left: none of them can go on without the one that failed."""
    for child in children:
        child.terminate()
    deadline_s = time.monotonic() + GRACE_S
    for child in children:
        try:
            child.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Starts several processes in one task.")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("command", nargs="+")
    said = parser.parse_args()
    sys.exit(run(said.command, said.processes))
