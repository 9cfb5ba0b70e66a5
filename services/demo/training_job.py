"""The real training jobs of the demo: a small network learns a function by gradient descent, in NumPy.

Nothing here is emulated: real gradients, real checkpoints, a real SIGTERM when a better workload needs the machine,
and the next attempt goes on at the saved step.
"""

from __future__ import annotations

import os
import time

import numpy as np

from topmast import training

STEPS_VARIABLE = "DEMO_STEPS"
PAUSE_VARIABLE = "DEMO_STEP_PAUSE_REAL_S"
_HIDDEN = 32
_BATCH = 64
_LEARNING_RATE = 0.05
_STEPS_PER_CHECKPOINT = 50
_STEPS_PER_LINE = 50


def train() -> None:
    """Trains until the last step, or until it is asked to stop: then it saves and returns."""
    steps = int(os.environ[STEPS_VARIABLE])
    pause_s = float(os.environ[PAUSE_VARIABLE])
    session = training.init()
    state = session.restore()
    step, weights = (0, _initial_weights()) if state is None else (int(state["step"]), _weights_of(state))
    print(f"starting at step {step} of {steps}", flush=True)
    loss = float("nan")
    while step < steps:
        # Every step draws its own batch from its own number: an interrupted run sees the same data as a whole one.
        loss = _gradient_step(weights, np.random.default_rng(step))
        step += 1
        session.step(progress=step)
        if step % _STEPS_PER_LINE == 0:
            print(f"step {step}: loss {loss:.5f}", flush=True)
        if session.should_stop or step % _STEPS_PER_CHECKPOINT == 0 or step == steps:
            session.save({"step": step, **weights})
        if session.should_stop:
            print(f"stopping at step {step}", flush=True)
            raise SystemExit(0)
        time.sleep(pause_s)  # leaves the two cores of a laptop to the schedulers
    print(f"trained: step {step}, loss {loss:.5f}", flush=True)


def _initial_weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "w1": rng.normal(0.0, 1.0, (1, _HIDDEN)),
        "b1": np.zeros(_HIDDEN),
        "w2": rng.normal(0.0, 0.1, (_HIDDEN, 1)),
        "b2": np.zeros(1),
    }


def _weights_of(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.array(state[name]) for name in ("w1", "b1", "w2", "b2")}


def _gradient_step(weights: dict[str, np.ndarray], rng: np.random.Generator) -> float:
    """One step of gradient descent on the squared error of sin(3x); changes the weights, returns the loss."""
    x = rng.uniform(-1.0, 1.0, (_BATCH, 1))
    hidden = np.tanh(x @ weights["w1"] + weights["b1"])
    error = hidden @ weights["w2"] + weights["b2"] - np.sin(3.0 * x)
    d_out = 2.0 * error / _BATCH
    d_hidden = (d_out @ weights["w2"].T) * (1.0 - hidden**2)
    gradients = {"w1": x.T @ d_hidden, "b1": d_hidden.sum(0), "w2": hidden.T @ d_out, "b2": d_out.sum(0)}
    for name, gradient in gradients.items():
        weights[name] -= _LEARNING_RATE * gradient
    return float((error**2).mean())


if __name__ == "__main__":
    train()
