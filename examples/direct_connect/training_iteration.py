"""One training iteration of a mixture of experts on several topologies, simulated: Figures 9 and 16 of the paper.

The model is made up: its layers have round numbers of the order of a transformer's, and were measured nowhere.  What
the comparison shows is how the parts of an iteration depend on the topology.  Every second block has its experts spread
over all nodes, so tokens travel by all-to-all; the gradients of all other layers are added up by allreduce.  All-to-all
on found topologies is within 1 % of the best routing.

Unlike the other examples this one looks at a single number of nodes, ``--nodes``: a torus has to have as many.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from math import isqrt
from pathlib import Path
from typing import Any

import analytic_baselines as baselines
from evaluation_figures import timeline_figure
from training_model import DirectConnectTimes, simulate_iteration

from collopt import report
from collopt.planners import find_topologies

DEGREE = 4
ALPHA = 10
NODE_BANDWIDTH = "12.5"

BLOCKS = 12
MB = 2**20


def made_up_trace() -> list[dict[str, Any]]:
    """Twelve blocks of attention and MLP, every second MLP as experts, between an embedding and a head."""
    columns = ("name", "forward_us", "backward_us", "gradient_bytes", "all_to_all_bytes")
    rows: list[tuple[str, int, int, int, int]] = [("embedding", 50, 100, 48 * MB, 0)]
    for block in range(BLOCKS):
        rows.append((f"attention {block}", 600, 1200, 9 * MB, 0))
        experts = (f"experts {block}", 900, 1800, 0, 6 * MB)
        rows.append(experts if block % 2 else (f"mlp {block}", 900, 1800, 18 * MB, 0))
    rows.append(("head", 400, 800, 48 * MB, 0))
    return [dict(zip(columns, row, strict=True)) for row in rows]


def networks(nodes: int) -> Iterator[tuple[str, DirectConnectTimes]]:
    """Two baselines, and all Pareto-efficient topologies that are found."""
    shared: dict[str, Any] = {
        "num_nodes": nodes, "degree": DEGREE, "alpha": ALPHA, "node_bandwidth": NODE_BANDWIDTH,
    }  # fmt: skip
    ring = baselines.shifted_ring_cost(nodes), baselines.shifted_ring_rate(nodes)
    yield "shifted rings", DirectConnectTimes(*ring, **shared)
    side = isqrt(nodes)
    yield "2D torus", DirectConnectTimes(baselines.torus_cost(side), baselines.torus_rate(side), **shared)
    for candidate in find_topologies(nodes, DEGREE):
        bounds = candidate.bounded().all_to_all
        assert bounds is not None
        yield (
            candidate.name,
            DirectConnectTimes(
                candidate.cost,
                bounds[0],
                reduce_scatter_cost=candidate.reduce_scatter_cost,
                **shared,
            ),
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the parts of the iteration for each network, and draw the timelines."""
    parser = argparse.ArgumentParser(description="Simulate a training iteration of a made-up mixture of experts.")
    parser.add_argument("--nodes", type=int, default=64, metavar="N", help="number of nodes, a square (default: 64)")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="where to leave the timelines")
    options = parser.parse_args(arguments)
    if options.nodes < 16 or isqrt(options.nodes) ** 2 != options.nodes or options.nodes % 4:
        parser.error("expected the square of an even number, 16 or more")

    print(f"{'ms':40}iteration = compute + allreduce not hidden + all-to-all, bucket")
    for number, (name, times) in enumerate(networks(options.nodes)):
        iteration = simulate_iteration(made_up_trace(), times)
        parts = (
            iteration.iteration_us, iteration.compute_us, iteration.unoverlapped_allreduce_us, iteration.all_to_all_us,
        )  # fmt: skip
        whole, compute, allreduce, all_to_all = (float(part / 1000) for part in parts)
        bucket = iteration.bucket_bytes // MB
        print(f"{name:40}{whole:9.1f} = {compute:7.1f} + {allreduce:20.1f} + {all_to_all:10.1f}, {bucket} MiB")
        if options.output:
            options.output.mkdir(parents=True, exist_ok=True)
            file = options.output / f"iteration_{number}.svg"
            report.save_figure(timeline_figure(iteration.timeline), file)


if __name__ == "__main__":
    main()
