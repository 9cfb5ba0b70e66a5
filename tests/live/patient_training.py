"""A real training process: it takes steps, saves every few of them, and ends when the file is there that it waits for."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from topmast import training

RELEASE_VARIABLE = "PATIENT_TRAINING_UNTIL"
STEPS_PER_CHECKPOINT = 10
_STEP_REAL_S = 0.02


def train() -> None:
    """Goes on where the last checkpoint was; saves and returns when it is told to stop, or when the file exists."""
    _train(training.init())


def train_a_skewed_model() -> None:
    """The same, of a model of which nine tenths are in one tensor."""
    session = training.init()
    session.report_model({"dense": np.zeros(9 * 2**17, np.int8), "rest": np.zeros(2**17, np.int8)})
    _train(session)


def train_and_save_only_when_told_to_stop() -> None:
    """The same, but what it has not saved at its end is lost."""
    _train(training.init(), steps_per_checkpoint=0)


def _train(session: training.Session, steps_per_checkpoint: int = STEPS_PER_CHECKPOINT) -> None:
    release = Path(os.environ[RELEASE_VARIABLE])
    state = session.restore()
    step = 0 if state is None else int(state["step"])
    while not session.should_stop and not release.exists():
        time.sleep(_STEP_REAL_S)
        step += 1
        session.step(progress=step)
        if steps_per_checkpoint and step % steps_per_checkpoint == 0:
            session.save({"step": step})
    session.save({"step": step})
