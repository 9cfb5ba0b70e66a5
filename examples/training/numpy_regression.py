"""A small neural network, trained in NumPy with gradients worked out by hand; survives preemption bit for bit.

By hand:          python examples/training/numpy_regression.py --steps 2000
Under Topmast:    topmast run --tenant research --cpus 1 --memory-gib 1 -- python examples/training/numpy_regression.py

Everything that the next step depends on is in the checkpoint: weights, momentum, and the state of the random generator.
So a run that is preempted and resumed prints the same digest at its end as one that is left in peace.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from topmast import training

Array = NDArray[np.float64]

INPUTS = 8
LEARNING_RATE = 0.02
MOMENTUM = 0.9


@dataclass
class Network:
    """Two layers with a tanh between them; `velocity` is the momentum of each of the weights."""

    weights: dict[str, Array]
    velocity: dict[str, Array]

    @staticmethod
    def fresh(hidden: int, generator: np.random.Generator) -> Network:
        weights = {
            "first": generator.normal(0.0, 1.0 / np.sqrt(INPUTS), (INPUTS, hidden)),
            "first_bias": np.zeros(hidden),
            "second": generator.normal(0.0, 1.0 / np.sqrt(hidden), (hidden, 1)),
            "second_bias": np.zeros(1),
        }
        return Network(weights, {name: np.zeros_like(weight) for name, weight in weights.items()})

    def train(self, inputs: Array, targets: Array) -> float:
        """One step of gradient descent with momentum on the mean squared error; returns the error before it."""
        weights = self.weights
        hidden = np.tanh(inputs @ weights["first"] + weights["first_bias"])
        error = hidden @ weights["second"] + weights["second_bias"] - targets
        # Backwards: from the mean of squares, through the second layer, the tanh and the first layer.
        to_output = 2.0 * error / len(inputs)
        to_hidden = (to_output @ weights["second"].T) * (1.0 - hidden**2)
        gradients = {
            "first": inputs.T @ to_hidden,
            "first_bias": to_hidden.sum(axis=0),
            "second": hidden.T @ to_output,
            "second_bias": to_output.sum(axis=0),
        }
        for name, gradient in gradients.items():
            self.velocity[name] = MOMENTUM * self.velocity[name] - LEARNING_RATE * gradient
            weights[name] = weights[name] + self.velocity[name]
        return float(np.mean(error**2))

    def digest(self) -> str:
        """The same for two networks only if they are the same to the last bit."""
        whole = hashlib.sha256()
        for name in sorted(self.weights):
            whole.update(self.weights[name].tobytes())
        return whole.hexdigest()[:16]


def batch(generator: np.random.Generator, size: int) -> tuple[Array, Array]:
    """Random points and the values of the function to be learned there."""
    inputs = generator.uniform(-1.0, 1.0, (size, INPUTS))
    targets = np.sin(3.0 * inputs[:, :1]) + inputs[:, 1:2] * inputs[:, 2:3]
    return inputs, targets


def main(arguments: argparse.Namespace) -> int:
    """0 when all steps are done, and also when it was asked to stop and has saved what it had."""
    with training.init() as session:
        generator = np.random.default_rng(arguments.seed)
        network = Network.fresh(arguments.hidden, generator)
        state = session.restore()
        if state is not None:
            network = Network(state["weights"], state["velocity"])
            generator.bit_generator.state = state["generator"]
            print(f"resumed at step {session.progress:.0f}", flush=True)
        session.report_model(network.weights)
        while session.progress < arguments.steps:
            loss = network.train(*batch(generator, arguments.batch))
            stop = session.step()
            if session.progress % arguments.print_every == 0:
                print(f"step {session.progress:.0f} loss {loss:.6f}", flush=True)
            if stop or session.progress % arguments.save_every == 0:
                session.save(
                    {
                        "weights": network.weights,
                        "velocity": network.velocity,
                        "generator": generator.bit_generator.state,
                    }
                )
            if stop and session.progress < arguments.steps:
                print(f"stopped at step {session.progress:.0f}", flush=True)
                return 0
            time.sleep(arguments.seconds_per_step)
        print(f"finished at step {session.progress:.0f} digest {network.digest()}", flush=True)
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--print-every", type=int, default=100, help="steps between two lines of output")
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="wait after each step, to watch it")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
