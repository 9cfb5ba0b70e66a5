"""A real training process: it takes steps, saves every few of them, and ends when the file is there that it waits for."""

from __future__ import annotations

import os
import time
from pathlib import Path

from topmast import training

RELEASE_VARIABLE = "PATIENT_TRAINING_UNTIL"
FAIL_ONCE_VARIABLE = "PATIENT_TRAINING_FAILS_AFTER"
STEPS_PER_CHECKPOINT = 10
_STEP_REAL_S = 0.02


def train() -> None:
    """Takes steps until the file exists; a first attempt fails after so many steps when it is asked to."""
    release = Path(os.environ[RELEASE_VARIABLE])
    fails_after = int(os.environ.get(FAIL_ONCE_VARIABLE, "0"))
    session = training.init()
    state = session.restore()
    step = 0 if state is None else int(state["step"])
    while not release.exists():
        time.sleep(_STEP_REAL_S)
        step += 1
        session.step(progress=step)
        if session.should_stop or step % STEPS_PER_CHECKPOINT == 0:
            session.save({"step": step})
        if session.should_stop:
            return
        if session.attempt == 1 and step == fails_after:
            raise RuntimeError("this attempt was asked to fail")
    session.save({"step": step})
