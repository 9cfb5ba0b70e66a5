"""Makes so many steps of a second each, saves after each of them, and goes on at the saved one, wherever it is started."""

import platform
import sys
import time

from topmast import training

steps = int(sys.argv[1])
with training.init() as session:
    session.restore()
    print(f"attempt {session.attempt} begins at step {session.progress:.0f} on {platform.node()}", flush=True)
    while session.progress < steps:
        time.sleep(1.0)
        stop = session.step()
        session.save({})
        if stop:
            break
