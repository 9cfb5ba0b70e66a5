"""Training that is as fast as its data loading: batches are made by processes, so that each further CPU helps.

By hand:            python examples/training/numpy_loading.py --steps 500
Its sensitivity:    topmast profile run --gpus 1 -- python examples/training/numpy_loading.py
Under Topmast:      topmast run --tenant research --gpus 1 -- python examples/training/numpy_loading.py

A batch depends on the seed and on its number alone: a run that is preempted and resumed sees the same ones.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray

from topmast import training

Array = NDArray[np.float64]

FEATURES = 16
LEARNING_RATE = 0.05
AHEAD = 2
"""Batches that each loader makes ahead."""


def batch(number: int, *, seed: int, size: int, work: int) -> tuple[Array, Array]:
    """Raw signals, decoded and augmented: the features are their strongest frequencies."""
    generator = np.random.default_rng([seed, number])
    signals = generator.normal(size=(size, 1024))
    for _ in range(work):
        signals = np.fft.irfft(np.fft.rfft(signals, axis=1) * 0.999, axis=1)
    features = np.abs(np.fft.rfft(signals, axis=1))[:, 1 : FEATURES + 1] / 32.0
    return features, features @ np.linspace(-1.0, 1.0, FEATURES)[:, None]


@contextmanager
def batches(first: int, arguments: argparse.Namespace) -> Iterator[Iterator[tuple[Array, Array]]]:
    """The batches from that number on, made by processes."""
    make = partial(batch, seed=arguments.seed, size=arguments.batch, work=arguments.work)
    with multiprocessing.get_context("spawn").Pool(arguments.loaders) as loaders:

        def made() -> Iterator[tuple[Array, Array]]:
            coming = [loaders.apply_async(make, (first + index,)) for index in range(AHEAD * arguments.loaders)]
            number = first + len(coming)
            while True:
                yield coming.pop(0).get()
                coming.append(loaders.apply_async(make, (number,)))
                number += 1

        yield made()


def main(arguments: argparse.Namespace) -> int:
    """0 when all steps are done, and also when it was asked to stop and has saved what it had."""
    with training.init() as session:
        state = session.restore()
        weights = np.zeros((FEATURES, 1)) if state is None else state["weights"]
        with batches(int(session.progress), arguments) as loaded:
            while session.progress < arguments.steps:
                inputs, targets = next(loaded)
                error = inputs @ weights - targets
                weights = weights - LEARNING_RATE * inputs.T @ error / len(inputs)
                stop = session.step()
                if session.progress % arguments.print_every == 0:
                    print(f"step {session.progress:.0f} loss {float(np.mean(error**2)):.6f}", flush=True)
                if stop or session.progress % arguments.save_every == 0:
                    session.save({"weights": weights})
                if stop and session.progress < arguments.steps:
                    print(f"stopped at step {session.progress:.0f}", flush=True)
                    return 0
        print(f"finished at step {session.progress:.0f}", flush=True)
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--work", type=int, default=20, help="how hard a batch is to make")
    parser.add_argument("--loaders", type=int, default=min(8, os.cpu_count() or 1), help="processes that make batches")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=500, help="steps between two checkpoints")
    parser.add_argument("--print-every", type=int, default=100, help="steps between two lines of output")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
