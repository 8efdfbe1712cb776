"""Trains a small network under DDP or FSDP, with Gloo and with plans, and compares the losses.

Four processes of this machine stand for four GPUs in a ring.  Run it as it is, or as torchrun runs it on a cluster,
where it trains with plans only::

    python examples/train.py ddp
    torchrun --standalone --nproc-per-node 4 examples/train.py fsdp

By a plan, gradients are added up in another order than by Gloo, so losses agree to what float32 can tell, not
to the bit.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from collopt.runtime import backend, launched_rank
from collopt.runtime.execution.local_ranks import run_ranks
from collopt.topologies import ring

RANKS = 4
STEPS = 8


def shard(model: torch.nn.Sequential) -> torch.nn.Module:
    """Divide parameters, gradients and states of the optimizer among all ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    return model


WAYS: dict[str, Callable[[torch.nn.Sequential], torch.nn.Module]] = {"ddp": DistributedDataParallel, "fsdp": shard}


def train(way: str, name: str, **meeting: Any) -> tuple[list[float], dict[str, int]]:
    """Train on one rank in one of `WAYS`, by the backend of this name; return the mean losses and what ran by plans."""
    dist.init_process_group(name, **meeting)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    trained = WAYS[way](model)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(1 + dist.get_rank())
    losses = []
    for _ in range(STEPS):
        inputs = torch.randn(64, 16, generator=data)
        loss = torch.nn.functional.mse_loss(trained(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(total := loss.detach())
        losses.append(total.item() / dist.get_world_size())
    planned = backend.usage().planned if name == backend.NAME else {}
    # A DDP model that outlives its group of Gloo may hang when it goes: torch waits for threads that wait for it.
    del trained, optimizer, loss
    dist.destroy_process_group()
    return losses, planned


def train_both(rank: int, folder: str, *, way: str) -> list[tuple[list[float], dict[str, int]]]:
    """Train with Gloo, then with plans that are made when they are first needed."""
    backend.configure(topology=ring(RANKS, bandwidth=25))
    return [
        train(way, name, init_method=f"file://{folder}/{name}", rank=rank, world_size=RANKS)
        for name in ("gloo", backend.NAME)
    ]


def main() -> None:
    """Print the losses."""
    way = sys.argv[1] if sys.argv[1:] else "ddp"
    if way not in WAYS:
        sys.exit(f"there is no way {way!r} to train; expected one of {', '.join(WAYS)}")
    if (rank := launched_rank()) is not None:
        backend.configure(topology=ring(RANKS, bandwidth=25))
        losses, planned = train(way, backend.NAME)
        if rank == 0:
            print(f"losses {', '.join(f'{loss:.6f}' for loss in losses)}; by plans: {planned}")
        return
    # By its name, because the processes import this module.
    task = partial(importlib.import_module(Path(__file__).stem).train_both, way=way)
    (plain, _), (planned_losses, planned) = run_ranks(task, RANKS, timeout_s=300, preload=["torch.distributed"])[0]
    print("step       Gloo    collopt")
    for step, (one, other) in enumerate(zip(plain, planned_losses, strict=True)):
        print(f"{step:4}{one:11.6f}{other:11.6f}")
    print("by plans:", ", ".join(f"{number} x {name}" for name, number in planned.items()))


if __name__ == "__main__":
    main()
