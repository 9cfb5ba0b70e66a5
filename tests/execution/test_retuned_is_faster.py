"""A running program gets faster when it gets another CPU, without being started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from services.execution.cpu_affinity import limit_cpus

pytestmark = pytest.mark.nightly

PROGRAM = Path(__file__).parents[2] / "examples" / "training" / "numpy_loading.py"
ITERATIONS = 300
TIMES = 3
"""Windows with each number of CPUs, in turn: what else runs on the machine disturbs both."""


def seconds_for(process: subprocess.Popen[str], iterations: int) -> float:
    """Until it has told of so many more; it prints a line for each."""
    assert process.stdout is not None
    began_s = time.perf_counter()
    for _ in range(iterations):
        assert process.stdout.readline().startswith("step ")
    return time.perf_counter() - began_s


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no other CPU to give it")
def test_training_does_more_iterations_a_second_with_two_cpus_than_with_one(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAM), "--print-every", "1", "--loaders", "2", "--work", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        family = psutil.Process(process.pid)
        try:
            seconds_for(process, ITERATIONS)
            taken_s = {1: 0.0, 2: 0.0}
            for _ in range(TIMES):
                for cpus in taken_s:
                    limit_cpus(process.pid, 1000 * cpus, "faster")
                    seconds_for(process, 20)
                    taken_s[cpus] += seconds_for(process, ITERATIONS)
        finally:
            for member in [*family.children(recursive=True), family]:
                member.kill()
    assert taken_s[1] > 1.2 * taken_s[2], taken_s
