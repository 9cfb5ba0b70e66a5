"""Data-parallel training in PyTorch (gloo) on any number of tasks, which may change while it runs; nothing of the work is lost.

By hand:          python examples/training/torch_data_parallel.py --steps 500
Under Topmast:    topmast run --tenant research --tasks 2 --max-tasks 4 --cpus 1 --memory-gib 1 \\
                      -- python examples/training/torch_data_parallel.py

Every step has one batch, whatever the number of tasks: each takes its share of it, and the gradients are added up by an
all_reduce. So the loss goes on as if nothing had happened when tasks come and go. When the job was resized, or a task is
about to leave, all learn of it with the sum: they leave the process group, rank 0 saves, and those that stay and those
that are new meet again, as many as there are then. So they do when a flexible task is lost; when a base task is, the next
attempt goes on from what rank 0 saved.
Needs PyTorch, which Topmast itself does not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import timedelta

from topmast import training

try:
    import torch
    import torch.distributed as dist
    from torch import nn
except ModuleNotFoundError:
    sys.stderr.write("this example needs PyTorch: pip install torch\n")
    sys.exit(2)

FEATURES = 16
HIDDEN = 32
PATIENCE = timedelta(seconds=60)


class Meeting:
    """Where the tasks of an attempt find each other, one membership after the other: a store that rank 0 keeps."""

    def __init__(self, session: training.Session) -> None:
        self._session = session
        self._store: dist.TCPStore | None = None

    def join(self) -> training.Membership | None:
        """The membership whose process group this task is in now; None when it is to stop.

        Rank 0 alone decides whether a membership is complete: who has said that it is there waits for what rank 0 says.
        """
        deadline_s = time.monotonic() + PATIENCE.total_seconds()
        while not self._session.should_stop:
            if time.monotonic() > deadline_s:
                raise TimeoutError("the other tasks did not come")
            membership = self._session.membership
            if membership.world_size == 1:
                return membership
            store = self._opened(membership)
            if store is None:
                continue
            named = dist.PrefixStore(str(membership.revision), store)
            try:
                complete = self._host(named, membership) if membership.rank == 0 else self._visit(named, membership)
            except RuntimeError:
                # Rank 0 has gone, and its store with it.
                self._store, complete = None, False
            if not complete:
                continue
            dist.init_process_group(
                "gloo", store=named, rank=membership.rank, world_size=membership.world_size, timeout=PATIENCE
            )
            return membership
        return None

    def _opened(self, membership: training.Membership) -> dist.TCPStore | None:
        """None when rank 0 is not there yet."""
        if self._store is None:
            try:
                self._store = dist.TCPStore(
                    os.environ["MASTER_ADDR"],
                    int(os.environ["MASTER_PORT"]),
                    is_master=membership.rank == 0,
                    wait_for_workers=False,
                    timeout=timedelta(seconds=5),
                )
            except RuntimeError:
                if membership.rank == 0:
                    raise
                time.sleep(0.05)
        return self._store

    def _host(self, store: dist.Store, membership: training.Membership) -> bool:
        """Waits for all others of this membership; False when there is another one meanwhile, or this task is to stop."""
        others = [f"task {rank}" for rank in range(1, membership.world_size)]
        while not store.check(others):
            if self._session.should_stop or self._session.membership != membership:
                store.set("abandoned", "")
                return False
            time.sleep(0.02)
        store.set("complete", "")
        return True

    def _visit(self, store: dist.Store, membership: training.Membership) -> bool:
        """Says that it is there, and waits for what rank 0 says; False when that has gone on to another membership."""
        store.set(f"task {membership.rank}", "")
        while not store.check(["complete"]):
            if store.check(["abandoned"]):
                return False
            time.sleep(0.02)
        return True


def leave() -> None:
    """The process group ends here; the store stays for the next one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def batch(step: int, size: int, truth: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The same on every task."""
    inputs = torch.randn(size, FEATURES, generator=torch.Generator().manual_seed(step))
    return inputs, torch.sin(inputs @ truth)


class Training:
    """Model and optimizer, the same on every task after every step."""

    def __init__(self, session: training.Session, arguments: argparse.Namespace) -> None:
        self._session = session
        self._arguments = arguments
        torch.manual_seed(arguments.seed)
        self._truth = torch.randn(FEATURES)
        self.model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, 1))
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.step = 0

    def state(self) -> dict[str, object]:
        return {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load(self, state: dict[str, object], step: int) -> None:
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        self.step = step

    def share(self, rank: int) -> None:
        """Rank 0's state, on every task."""
        if dist.is_initialized():
            shared: list[object] = [(self.state(), self.step) if rank == 0 else None]
            dist.broadcast_object_list(shared, src=0)
            if rank != 0:
                self.load(*shared[0])

    def run(self, membership: training.Membership) -> None:
        """Steps until all are done, or the group is to be left. Raises RuntimeError when a task is lost."""
        arguments, session = self._arguments, self._session
        rank, world_size = membership.rank, membership.world_size
        regroup = False
        while self.step < arguments.steps and not regroup:
            inputs, targets = batch(self.step, arguments.batch, self._truth)
            error = self.model(inputs[rank::world_size]).squeeze(1) - targets[rank::world_size]
            loss = error.square().sum() / arguments.batch
            self._optimizer.zero_grad()
            loss.backward()
            leaving = session.should_stop or (rank == 0 and session.membership != membership)
            whole_loss, regroup = self._add_up(loss, leaving)
            self._optimizer.step()
            self.step += 1
            session.step(progress=self.step)
            if rank == 0 and (self.step % arguments.print_every == 0 or regroup):
                print(f"step {self.step} loss {whole_loss:.6f} tasks {world_size}", flush=True)
            if rank == 0 and self.step % arguments.save_every == 0:
                session.save(self.state())
            time.sleep(arguments.seconds_per_step)

    def _add_up(self, loss: torch.Tensor, leaving: bool) -> tuple[float, bool]:
        """All gradients become the sums over all tasks; the loss of the whole batch, and whether the group is to be left."""
        gradients = [parameter.grad for parameter in self.model.parameters()]
        whole = torch.cat(
            [*(gradient.flatten() for gradient in gradients), torch.stack([loss.detach(), loss.new_tensor(leaving)])]
        )
        if dist.is_initialized():
            dist.all_reduce(whole)
        place = 0
        for gradient in gradients:
            gradient.copy_(whole[place : place + gradient.numel()].view_as(gradient))
            place += gradient.numel()
        return float(whole[-2]), bool(whole[-1] > 0)


def main(arguments: argparse.Namespace) -> int:
    """0 when all steps are done, and also when it was asked to stop and has saved what it had."""
    # In double precision, so that the order in which gradients are added up does not show in the loss.
    torch.set_default_dtype(torch.float64)
    with training.init() as session:
        work, meeting = Training(session, arguments), Meeting(session)
        session.report_model(work.model)
        saved = session.restore()
        if saved is not None:
            work.load(saved, int(session.progress))
        while (joined := meeting.join()) is not None:
            try:
                work.share(joined.rank)
                print(f"joined at step {work.step} rank {joined.rank} of {joined.world_size}", flush=True)
                work.run(joined)
            except RuntimeError as error:
                print(f"lost a task at step {work.step} ({type(error).__name__})", flush=True)
            leave()
            if joined.rank == 0:
                session.save(work.state())
            if work.step >= arguments.steps:
                print(f"finished at step {work.step}", flush=True)
                return 0
            if session.membership == joined and session.await_resize(joined) is None:
                break
        print(f"stopped at step {work.step}", flush=True)
    return 0


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
