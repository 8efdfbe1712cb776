"""Trains a policy on four processes and rolls it out on four others; new weights move in every step, in two ways.

Trainers hold the weights in shards of FSDP.  Two engines of two processes each hold them in shards of tensor
parallelism.  The plain way gathers every tensor on the trainers and broadcasts it; the other is one call of
`collopt.reshard`, by a plan for two boxes of four GPUs.  Both give the engines the same bytes::

    python examples/rollout.py
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

import collopt
from collopt.runtime import Mesh, Replicate, Shard, Sharding
from collopt.runtime.execution.local_ranks import run_ranks

TRAINERS, ENGINES = range(4), ((4, 5), (6, 7))
RANKS = 8
INPUTS, HIDDEN, ACTIONS = 64, 4096, 8
STEPS, SAMPLES = 30, 256

ENGINE_MESH = Mesh(ENGINES, ("engine", "tp"))
ENGINE_SHARDINGS = {
    "0.weight": Sharding(ENGINE_MESH, {"tp": Shard(0)}),
    "0.bias": Sharding(ENGINE_MESH, {"tp": Shard(0)}),
    "2.weight": Sharding(ENGINE_MESH, {"tp": Shard(1)}),
    "*": Sharding(ENGINE_MESH, [Replicate(), Replicate()]),
}

Weights = dict[str, torch.Tensor]


class Result(NamedTuple):
    """Rewards of each step, the seconds of both ways, and whether they gave the same weights."""

    rewards: list[float]
    plain_s: list[float]
    reshard_s: list[float]
    equal: bool


def network() -> collopt.Topology:
    """Two boxes of four GPUs, with a NIC each."""
    links = [(f"box{box}/gpu{gpu}", f"box{box}/nvlink", 450) for box in range(2) for gpu in range(4)]
    links += [(f"box{box}/gpu{gpu}", "fabric", 50) for box in range(2) for gpu in range(4)]
    switches = ["box0/nvlink", "box1/nvlink", "fabric"]
    gpus = [f"box{box}/gpu{gpu}" for box in range(2) for gpu in range(4)]
    return collopt.Topology.from_links(links, compute=gpus, switches=switches, bidirectional=True, name="two boxes")


def gather_and_broadcast(state: Weights, rank: int) -> Weights:
    """Make every tensor whole on the trainers, send it to all ranks, and cut it there."""
    weights = {}
    for name, shape in shapes().items():
        whole = state[name].full_tensor() if state else torch.empty(shape)  # type: ignore[attr-defined]
        dist.broadcast(whole, src=0)
        sharding = ENGINE_SHARDINGS.get(name, ENGINE_SHARDINGS["*"])
        if rank in sharding.mesh.ranks:
            box = sharding.boxes(shape)[sharding.mesh.ranks.index(rank)].tolist()
            weights[name] = whole[tuple(slice(begin, end) for begin, end in box)].contiguous()
    return weights


def shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of the whole weights."""
    return {"0.weight": (HIDDEN, INPUTS), "0.bias": (HIDDEN,), "2.weight": (ACTIONS, HIDDEN), "2.bias": (ACTIONS,)}


def roll_out(weights: Weights, inputs: torch.Tensor, group: Any) -> torch.Tensor:
    """Draw actions by the policy, each process of an engine with its part of the hidden layer."""
    hidden = (inputs @ weights["0.weight"].T + weights["0.bias"]).relu()
    scores = hidden @ weights["2.weight"].T
    dist.all_reduce(scores, group=group)
    chances = (scores + weights["2.bias"]).softmax(dim=1)
    return torch.multinomial(chances, 1, generator=torch.Generator().manual_seed(0))[:, 0]


def timed(way: Callable[[], Any], seconds: list[float]) -> Any:
    """Return what a way returns, and note its time, from when all ranks begin."""
    dist.barrier()
    start = time.perf_counter()
    result = way()
    dist.barrier()
    seconds.append(time.perf_counter() - start)
    return result


def train_and_roll_out(rank: int, folder: str) -> Result:
    """Be one of the processes."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rollout", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    mesh = DeviceMesh("cpu", list(TRAINERS))
    groups = [dist.new_group(list(engine)) for engine in ENGINES]
    model = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, ACTIONS))
    best = torch.randn(INPUTS, ACTIONS)
    if rank in TRAINERS:
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    topology = network()
    result = Result([], [], [], True)
    for step in range(STEPS):
        state: Weights = dict(model.state_dict()) if rank in TRAINERS else {}
        plain = timed(lambda state=state: gather_and_broadcast(state, rank), result.plain_s)
        weights = timed(
            lambda state=state: collopt.reshard(state, target=ENGINE_SHARDINGS, topology=topology), result.reshard_s
        )
        same = plain.keys() == weights.keys() and all(torch.equal(plain[name], weights[name]) for name in plain)
        result = result._replace(equal=result.equal and same)
        # Both engines act on inputs of their own, and tell the trainers.
        inputs = torch.randn(2 * SAMPLES, INPUTS, generator=torch.Generator().manual_seed(step))
        actions = torch.empty(2 * SAMPLES, dtype=torch.int64)
        for number, engine in enumerate(ENGINES):
            part = slice(number * SAMPLES, (number + 1) * SAMPLES)
            if rank in engine:
                actions[part] = roll_out(weights, inputs[part], groups[number])
            dist.broadcast(actions[part], src=engine[0])
        rewards = (actions == (inputs @ best).argmax(dim=1)).float()
        result.rewards.append(rewards.mean().item())
        if rank in TRAINERS:
            part = slice(rank * SAMPLES // 2, (rank + 1) * SAMPLES // 2)
            scores = model(inputs[part]).log_softmax(dim=1)[torch.arange(SAMPLES // 2), actions[part]]
            loss = -(scores * (rewards[part] - rewards.mean())).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()
    return result


def main() -> None:
    """Print the rewards, and the times of both ways; the first step makes the plan."""
    # By its name, because the processes import this module.
    task: Any = importlib.import_module(Path(__file__).stem).train_and_roll_out
    result: Result = run_ranks(task, RANKS, timeout_s=280, preload=["torch.distributed", "collopt.planners"])[-1]
    print(f"reward: {result.rewards[0]:.2f} at first, {result.rewards[-1]:.2f} after {STEPS} steps")
    print(f"weights are equal: {'yes' if result.equal else 'no'}")
    for name, seconds in (("gather and broadcast", result.plain_s), ("reshard", result.reshard_s)):
        later = sorted(seconds[1:])
        print(f"{name}: {1e3 * seconds[0]:.0f} ms at first, then {1e3 * later[len(later) // 2]:.1f} ms")


if __name__ == "__main__":
    main()
