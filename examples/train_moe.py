"""Trains a small mixture of experts in three ways and compares the losses.

Four processes of this machine stand for two servers of two GPUs, with two experts each.  The layers that all ranks
share train under DDP.  Tokens go to experts by collopt's dispatch, which sends each once to a server, or by torch's
all-to-all, which sends a copy for each expert; the third way is one process with all experts and all data::

    python examples/train_moe.py
    python examples/train_moe.py --traffic steps

leaves the bytes from rank to rank of each step in files that ``collopt plan ... all_to_allv --traffic`` takes.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_to_all_single
from torch.nn.parallel import DistributedDataParallel

from collopt.runtime import moe_combine, moe_dispatch
from collopt.runtime.execution.local_ranks import run_ranks

SERVERS, GPUS = 2, 2
RANKS = SERVERS * GPUS
EXPERTS, CHOICES = 8, 2
TOKENS, WIDTH = 64, 32
STEPS = 6
PLACEMENT = torch.arange(EXPERTS) * RANKS // EXPERTS

Experts = list[torch.nn.Linear]
Mixture = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, Experts], torch.Tensor]
"""From tokens, their experts, weights, and the experts at hand to what these make of the tokens."""


class Result(NamedTuple):
    """What a way leaves: mean losses, and the bytes that this rank sent to each in every step."""

    losses: list[float]
    sent: list[list[int]]


def run_experts(rows: torch.Tensor, counts: list[int], experts: Experts) -> torch.Tensor:
    """Run each expert on its rows."""
    return torch.cat([expert(part).relu() for expert, part in zip(experts, rows.split(counts), strict=True)])


def alone(tokens: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor, experts: Experts) -> torch.Tensor:
    """Use all experts in one process."""
    order = indices.flatten().argsort(stable=True)
    rows = order // CHOICES
    outputs = run_experts(tokens[rows], indices.flatten().bincount(minlength=EXPERTS).tolist(), experts)
    return torch.zeros_like(tokens).index_add(0, rows, outputs * weights.flatten()[order, None])


def by_torch(
    tokens: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor, experts: Experts, *, sent: list[list[int]]
) -> torch.Tensor:
    """Send a copy for each expert by torch's all-to-all, and get it back."""
    order = indices.flatten().argsort(stable=True)
    rows, chosen = order // CHOICES, indices.flatten()[order]
    sends = PLACEMENT[chosen].bincount(minlength=RANKS)
    dist.all_to_all_single(takes := torch.empty_like(sends), sends)
    splits = takes.tolist(), sends.tolist()
    dist.all_to_all_single(wanted := chosen.new_empty(sum(splits[0])), chosen, *splits)
    received = all_to_all_single(tokens.new_empty(len(wanted), WIDTH), tokens[rows], *splits)
    sent.append([WIDTH * 4 * count for count in splits[1]])
    by_expert = wanted.argsort(stable=True)
    mine = wanted - wanted.new_tensor(dist.get_rank() * len(experts))
    outputs = run_experts(received[by_expert], mine.bincount(minlength=len(experts)).tolist(), experts)
    back = all_to_all_single(torch.empty_like(tokens[rows]), outputs[by_expert.argsort()], *splits[::-1])
    return torch.zeros_like(tokens).index_add(0, rows, back * weights.flatten()[order, None])


def by_collopt(
    tokens: torch.Tensor, indices: torch.Tensor, weights: torch.Tensor, experts: Experts, *, sent: list[list[int]]
) -> torch.Tensor:
    """Send tokens once to each server, and add up there."""
    got = moe_dispatch(tokens, indices, PLACEMENT, weights, servers=SERVERS)
    sent.append(got.handle.sent_bytes.tolist())
    outputs = run_experts(got.tokens[got.rows], got.counts.tolist(), experts)
    return moe_combine(outputs, got.handle, got.weights)


class Model(torch.nn.Module):
    """Layers around experts, which it does not own: each rank has others."""

    def __init__(self, experts: Experts, mixture: Mixture) -> None:
        super().__init__()
        self.first, self.gate, self.last = (torch.nn.Linear(WIDTH, size) for size in (WIDTH, EXPERTS, 1))
        self.mixture = lambda *routed: mixture(*routed, experts)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Route every token to the experts that the gate likes best."""
        tokens = self.first(inputs)
        weights, indices = self.gate(tokens).softmax(dim=1).topk(CHOICES)
        predictions: torch.Tensor = self.last(tokens + self.mixture(tokens, indices, weights))
        return predictions


def train(mixture: Mixture, ranks: Sequence[int]) -> list[float]:
    """Train on the data of some ranks, with the experts of these; return the losses."""
    torch.manual_seed(0)
    every = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS)]
    experts = [expert for expert, home in zip(every, PLACEMENT.tolist(), strict=True) if home in ranks]
    model: torch.nn.Module = Model(experts, mixture)
    if len(ranks) == 1:
        model = DistributedDataParallel(model)
    of_experts = [parameter for expert in experts for parameter in expert.parameters()]
    optimizer = torch.optim.SGD([*model.parameters(), *of_experts], lr=0.1)
    data = [torch.Generator().manual_seed(1 + rank) for rank in ranks]
    losses = []
    for _ in range(STEPS):
        inputs = torch.cat([torch.randn(TOKENS, WIDTH, generator=each) for each in data])
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.abs().mean(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        for parameter in of_experts:
            parameter.grad /= RANKS / len(ranks)  # The sum of what the losses of all ranks say, as DDP's mean.
        optimizer.step()
        total = loss.detach()
        if len(ranks) == 1:
            dist.all_reduce(total)
        losses.append(total.item() * len(ranks) / RANKS)
    return losses


def train_all(rank: int, folder: str) -> list[Result]:
    """Train in all three ways on one rank, the last on rank 0 only."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/moe", rank=rank, world_size=RANKS)
    results = []
    for way in (by_torch, by_collopt):
        sent: list[list[int]] = []
        results.append(Result(train(partial(way, sent=sent), [rank]), sent))
    dist.destroy_process_group()
    if rank == 0:
        results.append(Result(train(alone, range(RANKS)), []))
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the losses, and the bytes between servers."""
    parser = argparse.ArgumentParser(description="Train a small mixture of experts in three ways.")
    parser.add_argument("--traffic", type=Path, metavar="FOLDER", help="where to leave the bytes of each step")
    options = parser.parse_args(arguments)
    # By its name, because the processes import this module.
    task: Any = importlib.import_module(Path(__file__).stem).train_all
    every = run_ranks(task, RANKS, timeout_s=300, preload=["torch.distributed", "collopt.planners"])
    print("step      torch    collopt  one process")
    for step, losses in enumerate(zip(*(way.losses for way in every[0]), strict=True)):
        print(f"{step:4}{losses[0]:11.6f}{losses[1]:11.6f}{losses[2]:13.6f}")
    servers = np.arange(RANKS) // GPUS
    outside = servers[:, None] != servers
    by_step = [np.array([ranks[way].sent for ranks in every]).swapaxes(0, 1) for way in range(2)]
    plain, dispatched = (int(each[:, outside].sum()) for each in by_step)
    print(f"bytes between servers to experts: torch {plain}, collopt {dispatched}")
    if options.traffic:
        options.traffic.mkdir(parents=True, exist_ok=True)
        for step, matrix in enumerate(by_step[1]):
            np.save(options.traffic / f"step{step}.npy", matrix)
        print(f"wrote {len(by_step[1])} files to {options.traffic}")


if __name__ == "__main__":
    main()
