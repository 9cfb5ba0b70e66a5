"""PyTorch DistributedDataParallel under Topmast: one process for each task, one GPU (or none) for each process.

    topmast submit -f examples/launchers/torch_ddp.yaml

`init_process_group` finds RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment of each task. A task sees its own GPUs alone,
so that its device is always the first. Preempted, it saves, and the next attempt goes on at the saved step, wherever that is.
Needs PyTorch, which Topmast itself does not.
"""

from __future__ import annotations

import argparse
import sys

from topmast import training

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
except ModuleNotFoundError:
    sys.stderr.write("this example needs PyTorch: pip install torch\n")
    sys.exit(2)

FEATURES = 16
SAMPLES = 32


def main(steps: int) -> None:
    """Fits a small network to a function; each rank has samples of its own at each step."""
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with training.init() as session:
        state = session.restore()
        if state is not None:
            model.module.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            print(f"rank {dist.get_rank()} goes on at step {session.progress:.0f}")
        stop = False
        while session.progress < steps and not stop:
            samples = torch.Generator().manual_seed(int(session.progress) * dist.get_world_size() + dist.get_rank())
            inputs = torch.randn(SAMPLES, FEATURES, generator=samples).to(device)
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True).sin())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            # Ranks may hear one step apart that they should stop: they agree, or some would wait for gradients that do not come.
            flag = torch.tensor([1.0 if session.step() else 0.0], device=device)
            dist.all_reduce(flag, dist.ReduceOp.MAX)
            stop = bool(flag.item())
            if stop or session.progress % 100 == 0 or session.progress >= steps:
                session.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()})
        if dist.get_rank() == 0:
            print(f"step {session.progress:.0f} on {dist.get_world_size()} ranks: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains a small network with DistributedDataParallel.")
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
