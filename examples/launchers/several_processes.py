"""PyTorch training for launchers that start several processes in one task: torchrun, DeepSpeed's, or start_processes.py beside this file.

Nothing here is Topmast's but the folder for checkpoints, which is the same for all attempts, and SIGTERM, which comes when the workload
has to leave. (`topmast.training` speaks for a task, and not for each of its processes.)
Needs PyTorch, which Topmast itself does not.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

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
CHECKPOINT = Path(os.environ.get("TOPMAST_CHECKPOINT_DIRECTORY", ".")) / "several-processes.pt"


def save(step: int, model: nn.Module) -> None:
    """Rank 0 writes beside, and renames: a checkpoint is whole, or it is the one before."""
    if dist.get_rank() == 0:
        CHECKPOINT.parent.mkdir(parents=True, exist_ok=True)
        beside = CHECKPOINT.with_suffix(".new")
        torch.save({"step": step, "model": model.state_dict()}, beside)
        beside.replace(CHECKPOINT)
    dist.barrier()


def main(steps: int) -> None:
    """Fits a small network to a function; each rank has samples of its own at each step."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stopping.append(number))
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    step, stop = 0, False
    if CHECKPOINT.exists():
        state = torch.load(CHECKPOINT, map_location=device, weights_only=True)
        step = int(state["step"])
        model.module.load_state_dict(state["model"])
        print(f"rank {dist.get_rank()} goes on at step {step}")
    while step < steps and not stop:
        samples = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
        inputs = torch.randn(SAMPLES, FEATURES, generator=samples).to(device)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True).sin())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        flag = torch.tensor([float(len(stopping))], device=device)
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        stop = bool(flag.item())
        if stop or step % 100 == 0 or step == steps:
            save(step, model.module)
    if dist.get_rank() == 0:
        print(f"step {step} on {dist.get_world_size()} ranks")
    dist.destroy_process_group()
    if stop and step < steps:
        sys.exit(128 + signal.SIGTERM)  # it is not done


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains a small network with several processes for each task.")
    parser.add_argument("--steps", type=int, default=300)
    main(parser.parse_args().steps)
