"""A small classifier in PyTorch, on one task or on many (distributed data parallel); survives preemption.

By hand:          python examples/training/torch_classifier.py
Under Topmast:    topmast run --tenant research --tasks 2 --gpus 1 -- python examples/training/torch_classifier.py

Topmast puts RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT into the environment, which is where torch.distributed looks
for them. Needs PyTorch, which Topmast itself does not.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time

from topmast import training

try:
    import torch
    import torch.distributed as dist
    from torch import nn
except ModuleNotFoundError:
    sys.stderr.write("this example needs PyTorch: pip install torch\n")
    sys.exit(2)

FEATURES = 16
CLASSES = 4


def all_should_stop(stop: bool) -> bool:
    """True on every rank as soon as one was asked to stop: else some would wait for a gradient that never comes."""
    if not dist.is_initialized():
        return stop
    asked_to_stop = torch.tensor([float(stop)])
    dist.all_reduce(asked_to_stop)
    return bool(asked_to_stop.item() > 0)


def batch(step: int, rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Every rank and step has data of its own, whichever attempt it is."""
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    inputs = torch.randn(size, FEATURES, generator=generator)
    quadrant = (inputs[:, 0] > 0).long() + 2 * (inputs[:, 1] > 0).long()
    return inputs, quadrant


def digest(model: nn.Module) -> str:
    """The same for two models only if they are the same to the last bit."""
    whole = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        whole.update(name.encode())
        whole.update(bytes(tensor.cpu().contiguous().view(torch.uint8).flatten().tolist()))
    return whole.hexdigest()[:16]


def main(arguments: argparse.Namespace) -> int:
    """0 when all steps are done, and also when it was asked to stop and has saved what it had."""
    session = training.init()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(arguments.seed)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES)).to(device)
    session.report_model(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    state = session.restore()
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        print(f"resumed at step {session.progress:.0f}", flush=True)
    trained = nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model
    stopped = False
    while session.progress < arguments.steps and not stopped:
        inputs, labels = batch(int(session.progress), session.rank, arguments.batch)
        loss = nn.functional.cross_entropy(trained(inputs.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        stopped = all_should_stop(session.step())
        if session.progress % arguments.print_every == 0:
            print(f"step {session.progress:.0f} loss {loss.item():.6f}", flush=True)
        if stopped or session.progress % arguments.save_every == 0:
            session.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
        time.sleep(arguments.seconds_per_step)
    if session.progress < arguments.steps:
        print(f"stopped at step {session.progress:.0f}", flush=True)
    else:
        print(f"finished at step {session.progress:.0f} digest {digest(model)}", flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()
    session.close()
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=100, help="steps between two checkpoints")
    parser.add_argument("--print-every", type=int, default=50, help="steps between two lines of output")
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="wait after each step, to watch it")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(parse(sys.argv[1:])))
