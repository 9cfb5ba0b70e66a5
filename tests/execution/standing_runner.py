"""Starts the reaper of a task as a runner does, and stays: what it has to say is passed on, line by line.

Its first line of input is the launch; its argument the folder of the control group, if there is one.
"""

import subprocess
import sys
from pathlib import Path

from services.execution import task_reaper
from services.execution.control_group import ControlGroup

launch = sys.stdin.readline()
with subprocess.Popen(
    [sys.executable, "-I", "-S", str(Path(task_reaper.__file__))],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    start_new_session=True,
    text=True,
) as reaper:
    for group in sys.argv[1:]:
        ControlGroup(Path(group), limited=False).add(reaper.pid)
    assert reaper.stdin is not None
    assert reaper.stdout is not None
    print(reaper.pid, flush=True)
    reaper.stdin.write(launch)
    reaper.stdin.flush()
    for line in reaper.stdout:
        print(line, end="", flush=True)
    print("silent", flush=True)
    sys.stdin.readline()
