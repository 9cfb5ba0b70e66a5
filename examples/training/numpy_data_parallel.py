"""Data-parallel training in NumPy on any number of tasks, which may change while it runs; nothing of the work is lost.

By hand:          python examples/training/numpy_data_parallel.py --steps 500
Under Topmast:    topmast run --tenant research --tasks 2 --max-tasks 4 --cpus 1 --memory-gib 1 \\
                      -- python examples/training/numpy_data_parallel.py

Every step has one batch, whatever the number of tasks: each takes its share of it, rank 0 adds the gradients up and sends the
sum to all. So the loss goes on as if nothing had happened when tasks come and go. When the job was resized, or a task
is about to leave, rank 0 says so with the sum: all leave the group, rank 0 saves, and those that stay and those that are new
meet again, as many as there are then. So they do when a flexible task is lost; when a base task is, the next attempt goes on from
what rank 0 saved.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from topmast import training

Array = NDArray[np.float64]

INPUTS = 16
LEARNING_RATE = 0.05
PATIENCE_S = 60.0


class Group:
    """The tasks of one membership: rank 0 has a connection to each of the others, the others have one to rank 0."""

    def __init__(self, membership: training.Membership, connections: list[Connection]) -> None:
        self.membership = membership
        self._connections = connections

    def add_up(self, gradient: Array, regroup: bool) -> tuple[Array, bool]:
        """The sum over all tasks, and whether the group is to be left. Raises OSError or EOFError when one is lost."""
        if self.membership.rank != 0:
            (hub,) = self._connections
            hub.send_bytes(np.append(gradient, regroup).tobytes())
            whole = np.frombuffer(hub.recv_bytes())
            return whole[:-1], bool(whole[-1])
        whole = np.append(gradient, regroup)
        for connection in self._connections:
            whole = whole + np.frombuffer(connection.recv_bytes())
        for connection in self._connections:
            connection.send_bytes(whole.tobytes())
        return whole[:-1], bool(whole[-1])

    def share(self, state: Array) -> Array:
        """Rank 0's state, on every task."""
        if self.membership.rank != 0:
            return np.frombuffer(self._connections[0].recv_bytes()).copy()
        for connection in self._connections:
            connection.send_bytes(state.tobytes())
        return state

    def leave(self) -> None:
        for connection in self._connections:
            connection.close()


def join(session: training.Session) -> Group | None:
    """Meets the other tasks, as many as there are now; None when this one is to stop."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not session.should_stop:
        if time.monotonic() > deadline_s:
            raise TimeoutError("the other tasks did not come")
        membership = session.membership
        found = _host(session, membership) if membership.rank == 0 else _visit(membership)
        if found is not None:
            return Group(membership, found)
    return None


def _host(session: training.Session, membership: training.Membership) -> list[Connection] | None:
    """Waits for all others of this membership; None when there is another one meanwhile."""
    connections: list[Connection] = []
    if membership.world_size == 1:
        return connections
    with socket.create_server(("", int(os.environ["MASTER_PORT"]))) as server:
        server.settimeout(0.1)
        while len(connections) < membership.world_size - 1:
            if session.should_stop or session.membership != membership:
                for connection in connections:
                    connection.close()
                return None
            try:
                visitor, _ = server.accept()
            except TimeoutError:
                continue
            visitor.setblocking(True)
            connection = Connection(visitor.detach())
            try:
                knows = int(connection.recv_bytes())
            except (OSError, EOFError):
                knows = -1
            if knows == membership.revision:
                connections.append(connection)
            else:
                connection.close()
    for connection in connections:
        connection.send_bytes(b"complete")
    return connections


def _visit(membership: training.Membership) -> list[Connection] | None:
    """Goes to rank 0; None when it is not there yet, or waits for others."""
    try:
        way = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), timeout=1.0)
    except OSError:
        time.sleep(0.05)
        return None
    way.setblocking(True)
    hub = Connection(way.detach())
    try:
        hub.send_bytes(str(membership.revision).encode())
        hub.recv_bytes()
    except (OSError, EOFError):
        hub.close()
        return None
    return [hub]


def batch(step: int, size: int, truth: Array) -> tuple[Array, Array]:
    """The same on every task."""
    generator = np.random.default_rng(step)
    inputs = generator.normal(0.0, 1.0, (size, INPUTS))
    return inputs, inputs @ truth + generator.normal(0.0, 0.1, size)


def main(arguments: argparse.Namespace) -> int:
    """0 when all steps are done, and also when it was asked to stop and has saved what it had."""
    truth = np.random.default_rng(arguments.seed).normal(0.0, 1.0, INPUTS)
    with training.init() as session:
        saved = session.restore()
        weights = np.zeros(INPUTS) if saved is None else np.asarray(saved["weights"])
        while (group := join(session)) is not None:
            joined = group.membership
            shared = group.share(np.append(weights, session.progress))
            weights, step = shared[:-1], int(shared[-1])
            print(f"joined at step {step} rank {joined.rank} of {joined.world_size}", flush=True)
            try:
                weights, step = train(session, group, weights, step, truth, arguments)
            except (OSError, EOFError):
                print(f"lost a task at step {int(session.progress)}", flush=True)
                step = int(session.progress)
            group.leave()
            if joined.rank == 0:
                session.save({"weights": weights})
            if step >= arguments.steps:
                print(f"finished at step {step}", flush=True)
                return 0
            if session.membership == joined and session.await_resize(joined) is None:
                break
        print(f"stopped at step {int(session.progress)}", flush=True)
    return 0


def train(
    session: training.Session, group: Group, weights: Array, step: int, truth: Array, arguments: argparse.Namespace
) -> tuple[Array, int]:
    """Steps until all are done, or the group is to be left."""
    rank, world_size = group.membership.rank, group.membership.world_size
    regroup = False
    while step < arguments.steps and not regroup:
        inputs, targets = batch(step, arguments.batch, truth)
        own, wanted = inputs[rank::world_size], targets[rank::world_size]
        error = own @ weights - wanted
        gradient = np.append(own.T @ error, error @ error) / arguments.batch
        leave = session.should_stop or (rank == 0 and session.membership != group.membership)
        whole, regroup = group.add_up(gradient, leave)
        # In place: who loses the others in the next step still has this one.
        weights[:] -= LEARNING_RATE * whole[:-1]
        step += 1
        session.step(progress=step)
        if rank == 0 and (step % arguments.print_every == 0 or regroup):
            print(f"step {step} loss {whole[-1]:.6f} tasks {world_size}", flush=True)
        if rank == 0 and step % arguments.save_every == 0:
            session.save({"weights": weights})
        time.sleep(arguments.seconds_per_step)
    return weights, step


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=100, help="steps between two checkpoints")
    parser.add_argument("--print-every", type=int, default=50, help="steps between two lines of output")
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="wait after each step, to watch it")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
