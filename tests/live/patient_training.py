"""A real training process: it takes steps, saves every few of them, and ends when the file is there that it waits for."""

from __future__ import annotations

import os
import time
from pathlib import Path

from topmast import training

RELEASE_VARIABLE = "PATIENT_TRAINING_UNTIL"
STEPS_PER_CHECKPOINT = 10
_STEP_REAL_S = 0.02


def train() -> None:
    """Goes on where the last checkpoint was; saves and returns when it is told to stop, or when the file exists."""
    release = Path(os.environ[RELEASE_VARIABLE])
    session = training.init()
    state = session.restore()
    step = 0 if state is None else int(state["step"])
    while not session.should_stop and not release.exists():
        time.sleep(_STEP_REAL_S)
        step += 1
        session.step(progress=step)
        if step % STEPS_PER_CHECKPOINT == 0:
            session.save({"step": step})
    session.save({"step": step})
