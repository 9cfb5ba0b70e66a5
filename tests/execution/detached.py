"""A task of which a process detaches itself in every way there is, and goes on.

Arguments: whether its environment is cleared (`cleared` or `kept`), the mark by which it is found, and how long the task itself runs.
"""

import os
import sys
import time

how, mark, seconds = sys.argv[1:]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        os.chdir("/")
        environment = {} if how == "cleared" else dict(os.environ)
        os.execvpe(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", mark], environment)  # noqa: S606  # there is no shell to be had: the environment is empty
    os._exit(0)
time.sleep(float(seconds))
