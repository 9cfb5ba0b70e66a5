"""JAX on several processes under Topmast: one process for each task.

    topmast submit -f examples/launchers/jax_distributed.yaml

`jax.distributed.initialize` is told what is in the environment of each task. A task sees its own GPUs alone, so that all of them are its
local devices. Each process computes the gradients of its own samples; all of them are gathered, and every process takes the mean.
Needs JAX, which Topmast itself does not.
"""

from __future__ import annotations

import argparse
import os
import sys

from topmast import training

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import multihost_utils
except ModuleNotFoundError:
    sys.stderr.write("this example needs JAX: pip install jax\n")
    sys.exit(2)

FEATURES = 16
SAMPLES = 32


def meet() -> None:
    """All processes know each other from here on."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # where there are no GPUs
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        num_processes=int(os.environ["WORLD_SIZE"]),
        process_id=int(os.environ["RANK"]),
    )


def main(steps: int) -> None:
    """Fits a linear function; each process has samples of its own at each step."""
    meet()
    value_and_gradient = jax.jit(
        jax.value_and_grad(lambda weights, inputs, wanted: jnp.mean((inputs @ weights - wanted) ** 2))
    )
    with training.init() as session:
        state = session.restore()
        weights = np.zeros(FEATURES, np.float32) if state is None else state["weights"]
        if state is not None:
            print(f"process {jax.process_index()} goes on at step {session.progress:.0f}")
        stop, loss = False, 0.0
        while session.progress < steps and not stop:
            samples = np.random.default_rng([int(session.progress), jax.process_index()])
            inputs = samples.standard_normal((SAMPLES, FEATURES), np.float32)
            value, gradient = value_and_gradient(weights, inputs, inputs.sum(axis=1))
            # With the gradients goes who was asked to stop: all learn of it at the same step.
            told = np.concatenate([np.asarray(gradient), [np.float32(value), np.float32(session.step())]])
            gathered = np.asarray(multihost_utils.process_allgather(told))
            mean = gathered.reshape(jax.process_count(), -1).mean(axis=0)
            weights, loss, stop = weights - 0.05 * mean[:FEATURES], float(mean[-2]), bool(mean[-1] > 0.0)
            if stop or session.progress % 100 == 0 or session.progress >= steps:
                session.save({"weights": weights})
        if jax.process_index() == 0:
            print(f"step {session.progress:.0f} on {jax.process_count()} processes: loss {loss:.6f}")
    jax.distributed.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fits a linear function with JAX on several processes.")
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
