"""A task with a thread, a child and one that leaves its session; a line of input has it start one more. Tells their ids."""

import subprocess
import sys
import threading

IDLE = [sys.executable, "-c", "import time; time.sleep(600)"]

threading.Thread(target=threading.Event().wait, daemon=True).start()
print(subprocess.Popen(IDLE).pid, subprocess.Popen(IDLE, start_new_session=True).pid, flush=True)
sys.stdin.readline()
print(subprocess.Popen(IDLE).pid, flush=True)
sys.stdin.readline()
