"""Dispatch of tokens to 8 of 64 experts on 4 servers: bytes between servers against plain all-to-allv and the bound.

The all-to-allv sends a copy for each expert, by the GPU that has the token, or balanced by FAST.  Factors are of the
busiest GPU's bytes over the bound of all schedules.  "limited" takes the experts of each token from the two servers
whose best suit it, as routers do that limit traffic.  Rows of Gloo have two GPUs per server and count what eight
processes really sent, with 4 bytes for each token's number, 8 for each choice's expert and weight; the others count
tokens alone.
"""

from __future__ import annotations

import importlib
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from collopt.planners import count_dispatch, schedule_all_to_allv, schedule_dispatch
from collopt.schedules import H200

if TYPE_CHECKING:
    import torch

IntArray = npt.NDArray[np.int64]

SERVERS, GPUS, FEW_GPUS = 4, 8, 2
EXPERTS, CHOICES = 64, 8
TOKENS, FEW_TOKENS = 4096, 256
"""Per GPU."""
TOKEN_BYTES = 7168
MB = 1e6
MANY_EXPERTS, REPEATED = 256, 8
UNEVEN = 0.5
"""Of the logarithm of servers' batches, the standard deviation."""


class Routing(NamedTuple):
    """How experts are drawn: the exponent of their popularity by Zipf's law, and the servers of a token, at most."""

    skew: float
    servers: int = SERVERS


ROUTINGS = {
    "random": Routing(0),
    "Zipf 0.8": Routing(0.8),
    "random, limited": Routing(0, 2),
    "Zipf 0.8, limited": Routing(0.8, 2),
}


def routed(routing: Routing, ranks: int, tokens: int, seed: int = 0) -> IntArray:
    """Experts of all ranks' tokens, (ranks, tokens, choices), all different, drawn by their popularity."""
    random = np.random.default_rng(seed)
    popularity = random.permutation(1 / np.arange(1, EXPERTS + 1) ** routing.skew)
    scores = np.log(popularity) + random.gumbel(size=(ranks, tokens, EXPERTS))
    groups = scores.reshape(ranks, tokens, SERVERS, -1)
    best = np.sort(groups, axis=3)[..., -CHOICES // routing.servers :].sum(axis=3)
    refused = best < np.sort(best, axis=2)[..., -routing.servers, None]
    groups[refused] = -np.inf
    return (-scores).argsort(axis=2)[:, :, :CHOICES]


def copies(indices: IntArray, placement: IntArray) -> IntArray:
    """Tokens from rank to rank with a copy for each expert."""
    return np.array([np.bincount(placement[rows].ravel(), minlength=len(indices)) for rows in indices])


def planned(name: str) -> dict[str, object]:
    """Count what 4 servers of 8 GPUs send."""
    ranks = SERVERS * GPUS
    indices, placement = routed(ROUTINGS[name], ranks, TOKENS), np.arange(EXPERTS) * ranks // EXPERTS
    shape = {"servers": SERVERS, "gpus_per_server": GPUS}
    plan = schedule_dispatch(count_dispatch(list(indices), placement, **shape), token_bytes=TOKEN_BYTES, stages="plain")
    plan.verify()
    balanced = schedule_all_to_allv(
        copies(indices, placement), **shape, stages="plain", max_stage_bytes=2**61, unit_bytes=TOKEN_BYTES
    )
    outside = balanced.homes[:, None] != balanced.homes
    bound = float(plan.bound.load)
    return {
        "benchmark": "moe",
        "case": f"4 x 8, {name}",
        "copies_mb": int((balanced.traffic * outside).sum()) * TOKEN_BYTES / MB,
        "dispatch_mb": int(plan.counts.by_server.sum()) * TOKEN_BYTES / MB,
        "copies_factor": balanced.unbalanced_bound / bound,
        "fast_copies_factor": balanced.scale_out_bytes / bound,
        "dispatch_factor": plan.load / bound,
    }


def measured(name: str) -> dict[str, object]:
    """Count what eight processes on 4 servers of 2 GPUs send in a dispatch and a combine."""
    from collopt.runtime.execution.local_ranks import run_ranks

    ranks = SERVERS * FEW_GPUS
    task = partial(importlib.import_module(Path(__file__).stem).exchange, name=name)  # by name, as processes import it
    there, back, bounds = (np.array(each) for each in zip(*run_ranks(task, ranks, timeout_s=300), strict=True))
    servers = np.arange(ranks) // FEW_GPUS
    outside = servers[:, None] != servers
    indices, placement = routed(ROUTINGS[name], ranks, FEW_TOKENS), np.arange(EXPERTS) * ranks // EXPERTS
    plain = np.where(outside, copies(indices, placement) * TOKEN_BYTES, 0)
    moved = np.where(outside, there, 0)
    return {
        "benchmark": "moe",
        "case": f"4 x 2 on Gloo, {name}",
        "copies_mb": float(plain.sum() / MB),
        "dispatch_mb": float(moved.sum() / MB),
        "combine_mb": float(np.where(outside, back, 0).sum() / MB),
        "copies_factor": float(max(plain.sum(axis=0).max(), plain.sum(axis=1).max()) / bounds[0]),
        "dispatch_factor": float(max(moved.sum(axis=0).max(), moved.sum(axis=1).max()) / bounds[0]),
    }


def uneven(servers: int, skew: float) -> list[dict[str, object]]:
    """Price relays where the batches of servers differ: loads over the bound, and predicted times over its time."""
    random, ranks = np.random.default_rng(0), servers * GPUS
    batches = random.lognormal(0, UNEVEN, servers)
    tokens = np.repeat(batches * 4 * TOKENS / batches.mean(), GPUS).astype(int)
    popularity = np.log(random.permutation(1 / np.arange(1, MANY_EXPERTS + 1) ** skew))
    indices = [
        (-popularity - random.gumbel(size=(count, MANY_EXPERTS))).argpartition(CHOICES, axis=1)[:, :CHOICES]
        for count in tokens // REPEATED
    ]
    indices = [np.tile(chosen, (REPEATED, 1)) for chosen in indices]
    placement = np.arange(MANY_EXPERTS) * ranks // MANY_EXPERTS
    counts = count_dispatch(indices, placement, servers=servers, gpus_per_server=GPUS)
    schedule_dispatch(counts, relay_rounds=1)  # loads the kernels
    rows: list[dict[str, object]] = []
    for name, rounds in (("direct", 0), ("1 part", 1), ("4 parts", 4), ("16 parts", 16), ("chosen", None)):
        began = time.process_time()
        plan = schedule_dispatch(counts, token_bytes=TOKEN_BYTES, relay_rounds=rounds)
        cpu_s = time.process_time() - began
        plan.verify()
        optimum = plan.optimum(H200, TOKEN_BYTES)
        factors = {
            "dispatch_factor": float(plan.gap + 1),
            "predicted_factor": float(plan.predicted(H200, TOKEN_BYTES) / optimum),
        }
        case = f"{servers} x 8, uneven, Zipf {skew}: {name}"
        rows.append(
            {"benchmark": "moe", "case": case, "plan_cpu_s": cpu_s, "optimum_s": float(optimum) / 1e6, **factors}
        )
    return rows


def exchange(rank: int, folder: str, *, name: str) -> tuple[list[int], list[int], float]:
    """Dispatch and combine on one rank; return bytes to each rank there and back, and those of the bound."""
    import torch
    import torch.distributed as dist

    from collopt.runtime import moe_combine, moe_dispatch

    ranks = SERVERS * FEW_GPUS
    dist.init_process_group("gloo", init_method=f"file://{folder}/moe", rank=rank, world_size=ranks)
    indices = torch.from_numpy(routed(ROUTINGS[name], ranks, FEW_TOKENS)[rank])
    tokens: torch.Tensor = torch.randn(FEW_TOKENS, TOKEN_BYTES // 2, dtype=torch.bfloat16)
    weights = torch.full(indices.shape, 1 / CHOICES)
    got = moe_dispatch(tokens, indices, np.arange(EXPERTS) * ranks // EXPERTS, weights, servers=SERVERS)
    there = got.handle.sent_bytes
    assert got.weights is not None
    back = moe_combine(got.tokens[got.rows], got.handle, got.weights)
    # Experts that do nothing give back what they got, but for rounding.
    assert torch.allclose(back, tokens, atol=0.02, rtol=0.02)
    dist.destroy_process_group()
    bound = float(got.handle.plan.bound.load) * TOKEN_BYTES
    return there.tolist(), (got.handle.sent_bytes - there).tolist(), bound


def measure() -> list[dict[str, object]]:
    """Count all cases."""
    relays = [row for servers in (4, 8) for skew in (0, 0.8) for row in uneven(servers, skew)]
    return [*relays, *map(planned, ROUTINGS), *map(measured, ("random", "Zipf 0.8, limited"))]


if __name__ == "__main__":
    for each in measure():
        print({name: round(value, 3) if isinstance(value, float) else value for name, value in each.items()})
