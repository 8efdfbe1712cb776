"""Allreduce and all-to-all of baselines and of found topologies against the number of nodes: Figure 7 of the paper.

Four links per node, 10 µs per step, 100 Gb/s per node, 1 MiB of data.  The times of found topologies for all-to-all are
those of shortest paths used in equal parts, which better routing may shorten; for double binary trees they are a bound
that none can beat, so the comparison errs on the side of the baseline.  Run it with ``--up-to 1024 --output figures``
for the range of the paper.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import isqrt
from pathlib import Path

import analytic_baselines as baselines
import pandas as pd
from evaluation_figures import runtime_figure

from collopt import report
from collopt.planners import sweep_topologies
from collopt.schedules import StepCost
from collopt.solvers.flows.shortest_paths import all_to_all_bounds
from collopt.topologies import Topology, bandwidth_optimum, generalized_kautz, low_diameter_circulant, moore_steps

DEGREE = 4
NUM_BYTES = 2**20
ALPHA = 10
NODE_BANDWIDTH = "12.5"


def allreduce_us(cost: StepCost) -> float:
    """2 (T_L + T_B)."""
    return float(2 * cost.runtime(NUM_BYTES, alpha=ALPHA, node_bandwidth=NODE_BANDWIDTH))


def all_to_all_us(rate: Fraction, nodes: int) -> float:
    """(M/B) d / (N f)."""
    return float(baselines.all_to_all_us(rate, nodes, DEGREE, NUM_BYTES, NODE_BANDWIDTH))


def reached_us(topology: Topology) -> float:
    """All-to-all by shortest paths in equal parts."""
    graph = topology.graph
    assert graph is not None
    reached, _ = all_to_all_bounds(graph.num_nodes, *graph.adjacency)
    return all_to_all_us(reached, graph.num_nodes)


def rows(nodes: int, best_us: float) -> Iterator[tuple[str, float | None, float | None]]:
    """Topology, time of allreduce, and time of all-to-all, for one number of nodes."""
    ring = all_to_all_us(baselines.shifted_ring_rate(nodes), nodes)
    yield "shifted rings", allreduce_us(baselines.shifted_ring_cost(nodes)), ring
    tree = baselines.double_binary_tree_allreduce_us(nodes, NUM_BYTES, alpha=ALPHA, node_bandwidth=NODE_BANDWIDTH)
    yield "double binary tree", float(tree), all_to_all_us(baselines.double_binary_tree_rate(nodes), nodes)
    side = isqrt(nodes)
    if side * side == nodes:
        torus = all_to_all_us(baselines.torus_rate(side), nodes)
        yield "2D torus", allreduce_us(baselines.torus_cost(side)), torus
    yield "best found", best_us, None
    yield "generalized Kautz", None, reached_us(generalized_kautz(DEGREE, nodes))
    yield "circulant", None, reached_us(low_diameter_circulant(nodes, DEGREE))
    least = StepCost(moore_steps(nodes, DEGREE), bandwidth_optimum(nodes))
    yield "bound", allreduce_us(least), all_to_all_us(baselines.rate_limit(nodes, DEGREE), nodes)


def table(sizes: Sequence[int]) -> pd.DataFrame:
    """One row per number of nodes and topology."""
    swept = sweep_topologies(sizes, DEGREE, alpha=ALPHA, size=NUM_BYTES, node_bandwidth=NODE_BANDWIDTH)
    best = swept.groupby("nodes")["allreduce_us"].min()
    made = [(nodes, *row) for nodes in sizes for row in rows(nodes, float(best[nodes]))]
    return pd.DataFrame(made, columns=["nodes", "topology", "allreduce_us", "all_to_all_us"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the largest size, and draw all of them."""
    parser = argparse.ArgumentParser(description="Times of allreduce and all-to-all against the number of nodes.")
    parser.add_argument("--up-to", type=int, default=64, metavar="N", help="largest number of nodes (default: 64)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to leave the figure and its table")
    options = parser.parse_args(arguments)
    if options.up_to < 16:
        parser.error("expected at least 16 nodes")

    sizes = range(16, options.up_to + 1, 4)  # the shifted rings ask for multiples of four
    times = table(sizes)
    print(f"{sizes[-1]} nodes          allreduce   all-to-all")
    for _, row in times[times["nodes"] == sizes[-1]].iterrows():
        shown = ("         -" if pd.isna(time) else f"{time:7.1f} µs" for time in row.iloc[2:])
        print(f"{row['topology']:20}", *shown)
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        times.to_csv(options.output / "runtimes_by_size.csv", index=False)
        report.save_figure(runtime_figure(times), options.output / "runtimes_by_size.svg")


if __name__ == "__main__":
    main()
