"""A program of a job: says on which CPUs it, and a process that it starts, may run; then takes its steps."""

import os
import subprocess
import sys
import time
from pathlib import Path

from topmast import training

WITH_CHILD = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]

with training.init(heartbeat_interval_s=0.05) as session:
    for _ in range(int(os.environ["STEPS"])):
        child = subprocess.run(WITH_CHILD, capture_output=True, text=True, check=True).stdout.strip()
        with Path(os.environ["SEEN"]).open("a") as seen:
            print(sorted(os.sched_getaffinity(0)), child, file=seen)
        session.step()
        time.sleep(0.01)
