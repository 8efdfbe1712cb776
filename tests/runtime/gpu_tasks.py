"""What the ranks of the tests on GPUs do, through NCCL; a module of its own because the processes import it."""

from __future__ import annotations

import os
from functools import partial
from itertools import product
from types import SimpleNamespace

import backend_tasks
import moe_tasks
import torch
import torch.distributed as dist
from all_to_all_tasks import TYPES, matrices
from async_tasks import started
from runtime_forests import random_schedule
from runtime_tasks import message_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from collopt.runtime import all_to_all_single, backend, execute
from collopt.runtime.execution.rendezvous import separate_hosts

RANKS = 4
SIZES = (7, 10007, 1 << 20)


def use_gpu(rank: int) -> None:
    """Make one GPU the current one, which other ranks use too where there are fewer."""
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    separate_hosts("nccl", rank, RANKS)
    torch.cuda.set_device(rank % torch.cuda.device_count())


def join(rank: int, folder: str) -> None:
    """Make this process a rank of four, with NCCL."""
    use_gpu(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)


def overlapped_calls(rank: int, folder: str) -> dict[str, bool]:
    """Calls on CUDA tensors, and other kernels between them."""
    join(rank, folder)
    plan = SimpleNamespace(collective="allreduce", schedule=random_schedule("allreduce", RANKS, 2, seed=3))
    rows = torch.rand(6, 1 << 20, device="cuda")
    wanted, outputs = torch.empty_like(rows), torch.empty_like(rows)
    for row, output in zip(rows, wanted, strict=True):
        execute(plan, output, row)
    works = []
    for row, output in zip(rows, outputs, strict=True):
        # The call has to wait for what the current stream makes of its input.
        scaled = (row * 4).mul_(0.25)
        works.append(started(partial(execute, plan, output, scaled, async_op=True)))
        del scaled
        torch.rand(1 << 20, device="cuda")
    reused = call_on_freed_input(plan, rows[0])
    for work in works:
        work.wait()
    future = works[0].get_future().then(lambda done: done.value()[0].clone()).wait()
    right = torch.equal(outputs, wanted)  # Which waits for the current stream, and so for the calls.
    return {
        "as synchronous": right,
        "completed": all(work.is_completed() for work in works),
        "future": torch.equal(future, wanted[0]),
        "input freed and its memory reused": torch.equal(reused, wanted[0]),
    }


def call_on_freed_input(plan: SimpleNamespace, row: torch.Tensor) -> torch.Tensor:
    """Start a call on an input that is freed at once, and write to memory that the allocator may have from it."""
    output, mine = torch.empty_like(row), row.clone()
    work = started(partial(execute, plan, output, mine, async_op=True))
    del mine
    torch.empty_like(row).fill_(-1)
    work.wait()
    return output


def mixture(rank: int, folder: str) -> dict[str, bool]:
    """Dispatches and combines of two servers, and their gradients, compared with one rank's on the CPU."""
    join(rank, folder)
    types = (torch.float32, torch.bfloat16)
    found = [moe_tasks.trained(rank, seed, dtype, {"servers": 2}, "cuda") for seed, dtype in enumerate(types)]
    return {f"{name} {seed}": fine for seed, each in enumerate(found) for name, fine in each.items()}


def exchanges(rank: int, folder: str) -> dict[str, bool]:
    """All-to-alls with unequal splits, compared with NCCL's own."""
    join(rank, folder)
    results = {}
    for number, (name, matrix) in enumerate(matrices(7, RANKS).items()):
        sends, receives = matrix[rank].tolist(), matrix[:, rank].tolist()
        mine = torch.rand(sum(sends), 3, device="cuda").to(TYPES[number % 4])
        wanted, output, later = (torch.zeros(sum(receives), 3, device="cuda", dtype=mine.dtype) for _ in range(3))
        dist.all_to_all_single(wanted, mine, receives, sends)
        work = all_to_all_single(later, mine, receives, sends, async_op=True, servers=2)
        all_to_all_single(output, mine, receives, sends)
        assert work is not None
        work.wait()
        results[name] = torch.equal(output, wanted) and torch.equal(later, wanted) and work.is_completed()
    message = message_of(lambda: all_to_all_single(torch.ones(RANKS), torch.ones(RANKS)))
    results["on the CPU"] = message.startswith("UnsupportedError: output is on cpu but the group's backend is nccl")
    return results


def backend_calls(rank: int, folder: str, plans: str) -> tuple[dict[str, bool], dict[str, int]]:
    """Every collective of the torch backend on CUDA tensors, compared with NCCL's own; and how many ran by plans."""
    use_gpu(rank)
    torch.set_default_device("cuda")
    backend.configure(plans=plans)
    backend_tasks.join(rank, f"{folder}/first")
    own = dist.new_group(backend="nccl")
    agrees = backend_tasks.comparisons(rank, own, product(SIZES, (torch.int64, torch.bfloat16)))
    planned = backend.usage().planned
    for check in (
        backend_tasks.average,
        backend_tasks.shapes,
        backend_tasks.functional_collectives,
        backend_tasks.beside_the_caller,
        backend_tasks.callbacks,
        backend_tasks.objects,
        backend_tasks.scattered,
    ):
        agrees[check.__name__] = check(rank)
    agrees["empty tensors"] = backend_tasks.nothing()
    agrees["uneven"] = backend_tasks.compared(partial(backend_tasks.uneven, rank), own)
    return agrees, planned


def trained(rank: int, folder: str, plans: str) -> dict[str, list[float]]:
    """Losses of DDP and FSDP on GPUs, by plans and by NCCL."""
    use_gpu(rank)
    backend.configure(plans=plans)
    results = {}
    for name in ("collopt", "nccl"):
        backend_tasks.join(rank, f"{folder}/{name}", name)
        with torch.device("cuda"):
            results[f"ddp {name}"] = backend_tasks.losses(rank)
        results[f"fsdp {name}"] = sharded_losses(rank)
        if name == "collopt":
            usage = backend.usage().planned
            results["planned"] = [usage[each] for each in ("allgather", "reduce_scatter", "allreduce")]
        dist.destroy_process_group()
    return results


def sharded_losses(rank: int) -> list[float]:
    """Train a small network whose parameters are divided among all ranks."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).cuda()
    mesh = init_device_mesh("cuda", (RANKS,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(1 + rank)
    losses = []
    for _ in range(4):
        inputs = torch.randn(64, 16, device="cuda")
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dist.all_reduce(mean := loss.detach().clone(), dist.ReduceOp.AVG)
        losses.append(mean.item())
    return losses
