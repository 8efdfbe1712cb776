"""Losses of the planner ``auto``: its predicted times over those of the best single planner, on random networks.

Networks are irregular meshes, one-way links, boxes with and without switches that copy and add, and regular ones, of 2
to 64 ranks.  ``python benchmarks/portfolio.py --networks 60`` prints the cases that lose more than 1 %, and a line for
each effort.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import collopt
from collopt import Topology
from collopt.errors import BoundError, CapacityOverflowError, NoAnswerError, UnsupportedError
from collopt.planners import PLANNERS
from collopt.schedules import as_bytes
from collopt.schedules.timed_run import Predictor
from collopt.topologies import RuntimeCosts, complete, ring, torus

COSTS = RuntimeCosts(alpha=2, send="0.2")
SIZES = ("1K", "64K", "1M", "64M", "1G")
COLLECTIVES = ("allgather", "allreduce", "reduce_scatter", "broadcast", "reduce", "all_to_all", "all_to_allv")
RANKS = (2, 3, 4, 5, 6, 8, 8, 10, 12, 16, 16, 20, 24, 32, 40, 48, 64)
BANDWIDTHS, LATENCIES = (1, 5, 10, 25, 25, 50, 100), ("0.5", "1", "1", "2")
NETWORKS, EFFORTS = 12, ("low", "default", "high")
LOSS = 0.01
EXCLUDED = ("auto", "milp")  # itself, and a planner that the clock ends
REFUSALS = (UnsupportedError, BoundError, CapacityOverflowError, NoAnswerError)

Row = dict[str, Any]


def mesh(rng: random.Random, ranks: int) -> Topology:
    """Ranks in a tree, with up to two more links for each."""
    names = [f"r{rank}" for rank in range(ranks)]
    pairs = {(rank, rng.randrange(max(0, rank - 4), rank)) for rank in range(1, ranks)}
    for _ in range(rng.randrange(2 * ranks)):
        first, second = rng.sample(range(ranks), 2)
        pairs.add((max(first, second), min(first, second)))
    links = [(names[a], names[b], rng.choice(BANDWIDTHS), rng.choice(LATENCIES)) for a, b in sorted(pairs)]
    return Topology.from_links(links, compute=names, bidirectional=True, name=f"mesh of {ranks}")


def one_way(rng: random.Random, ranks: int) -> Topology:
    """A ring of one-way links, with up to two more for each rank."""
    names = [f"r{rank}" for rank in range(ranks)]
    order = rng.sample(range(ranks), ranks)
    pairs = set(zip(order, order[1:] + order[:1], strict=True))
    for _ in range(rng.randrange(2 * ranks)):
        first, second = rng.sample(range(ranks), 2)
        pairs.add((first, second))
    links = [(names[a], names[b], rng.choice(BANDWIDTHS), rng.choice(LATENCIES)) for a, b in sorted(pairs)]
    return Topology.from_links(links, compute=names, name=f"one-way links of {ranks}")


def boxes(rng: random.Random, ranks: int, adding_share: float = 0) -> Topology:
    """Boxes of up to 8 ranks on a switch each, their NICs on one more; some switches multicast and aggregate."""
    sizes: list[int] = []
    while sum(sizes) < ranks:
        sizes.append(min(rng.choice((2, 4, 4, 8, 8)), ranks - sum(sizes)))
    if ranks % 4 == 0 and rng.random() < 0.5:
        sizes = [4] * (ranks // 4)
    inside, nic = rng.choice((100, 200, 300)), rng.choice((10, 25, 50))
    links: list[tuple[str, str, int, str]] = []
    for box, size in enumerate(sizes):
        for gpu in range(size):
            name = f"box{box}/gpu{gpu}"
            links.append((name, f"box{box}/switch", inside, "0.3"))
            if len(sizes) > 1:
                links.append((name, "fabric", nic if rng.random() < 0.8 else rng.choice((10, 25, 50)), "1"))
            elif gpu and rng.random() < 0.5:
                links.append((f"box{box}/gpu{gpu - 1}", name, 25, "0.5"))
    nodes = dict.fromkeys(end for link in links for end in link[:2])
    switches = [name for name in nodes if "/gpu" not in name]
    adding = [name for name in switches if rng.random() < adding_share]
    name = f"boxes of {ranks}{' that add' if adding_share else ''}"
    return Topology.from_links(
        links,
        compute=[name for name in nodes if "/gpu" in name],
        switches=switches,
        bidirectional=True,
        multicast=adding,
        aggregation=adding,
        name=name,
    )


def regular(rng: random.Random, ranks: int) -> Topology:
    """A ring, a torus, or all ranks linked."""
    bandwidth = rng.choice((25, 50))
    divisors = [number for number in range(2, ranks) if number * number <= ranks and ranks % number == 0]
    kind = rng.choice(("ring", "torus", "complete"))
    if kind == "torus" and divisors:
        return torus(divisors[-1], ranks // divisors[-1], bandwidth=bandwidth, latency=1)
    return (complete if kind == "complete" else ring)(ranks, bandwidth=bandwidth, latency=1)


def cases(count: int, seed: int, most_ranks: int = RANKS[-1]) -> Iterator[tuple[Topology, str, Row]]:
    """Yield networks, collectives and their root or traffic."""
    rng = random.Random(seed)
    for number in range(count):
        ranks = min(rng.choice(RANKS), most_ranks)
        kind = number % 5
        network = (
            mesh(rng, ranks)
            if kind == 0
            else one_way(rng, ranks)
            if kind == 1
            else boxes(rng, ranks)
            if kind == 2
            else boxes(rng, ranks, adding_share=0.7)
            if kind == 3
            else regular(rng, ranks)
        )
        collective = rng.choice(COLLECTIVES)
        problem: Row = {}
        if collective in ("broadcast", "reduce"):
            problem["root"] = rng.randrange(ranks)
        elif collective == "all_to_allv":
            rows = [[rng.choice((0, 1, 1, 2, 9)) * (a != b) for b in range(ranks)] for a in range(ranks)]
            problem["traffic"] = rows if any(map(any, rows)) else [[int(a != b) for b in range(ranks)] for a in rows]
        yield network, collective, problem


def best_times(network: Topology, collective: str, problem: Row) -> dict[str, tuple[float, str]]:
    """For each size the least predicted time of all single planners, and which has it."""
    best: dict[str, tuple[float, str]] = {}
    for name, planner in PLANNERS.items():
        if name in EXCLUDED or not planner.plans(collective):
            continue
        plans: dict[str, collopt.Plan] = {}
        try:
            if planner.takes(collective, "size"):
                for size in SIZES:
                    plans[size] = planner(network, collective, size=size, **problem)
            else:
                plans = dict.fromkeys(SIZES, planner(network, collective, **problem))
        except REFUSALS:
            continue
        for size, plan in plans.items():
            predicted = float(Predictor(plan.schedule, plan.topology, COSTS).time(as_bytes(size)))
            best[size] = min(best.get(size, (predicted, name)), (predicted, name))
    return best


def losses(count: int, seed: int, efforts: Sequence[str], most_ranks: int = RANKS[-1]) -> Iterator[Row]:
    """Yield a row for each network, size and effort."""
    for number, (plain, collective, problem) in enumerate(cases(count, seed, most_ranks)):
        network = plain.changed(costs=COSTS)
        best = best_times(network, collective, problem)
        for effort, size in product(efforts, best):
            start = time.process_time()
            plan = collopt.plan(network, collective, size=size, effort=effort, **problem)
            seconds = time.process_time() - start
            predicted = float(plan.provenance["predicted_us"])
            best_time, name = best[size]
            yield {
                "benchmark": f"portfolio, effort {effort}",
                "case": f"{number}: {network.name}, {collective}, {size}",
                "engine": plan.planner,
                "peer": name,
                "cpu_s": seconds,
                "predicted_us": predicted,
                "loss": predicted / best_time - 1,
            }


def measure() -> list[Row]:
    """Rows of a few small networks."""
    return list(losses(NETWORKS, 1, EFFORTS, 16))


def main() -> None:
    """Print the cases that lose more than 1 %, and a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=NETWORKS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=RANKS[-1])
    parser.add_argument("--effort", action="append", choices=EFFORTS)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    efforts = arguments.effort or EFFORTS
    rows: list[Row] = []
    for row in losses(arguments.networks, arguments.seed, efforts, arguments.ranks):
        rows.append(row)
        if row["loss"] > LOSS:
            name = f"{row['benchmark']}: {row['case']}"
            print(f"{name}: {row['engine']} loses {row['loss']:.1%} to {row['peer']}", flush=True)
    for effort in efforts:
        own = [row for row in rows if row["benchmark"].endswith(effort)]
        shares = [row["loss"] for row in own]
        counts = [sum(share > limit for share in shares) for limit in (0.01, 0.05, 0.2)]
        seconds = sum(row["cpu_s"] for row in own)
        print(f"effort {effort}: {len(own)} cases; {counts} lose more than 1, 5 and 20 %, the most {max(shares):.1%}")
        print(f"  {seconds:.1f} CPU s of planning")
    if arguments.output:
        arguments.output.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
