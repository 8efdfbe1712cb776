"""The optimality test of ForestColl section 4 by three max-flow engines.

Can every rank receive every shard at rate x*?  The same integer network and the same sinks for all: ours (Dinic,
numba), networkx (preflow-push) and OR-Tools (push-relabel, C++).  Each engine runs in a process of its own, because
OR-Tools and HiGHS cannot be loaded together, and builds its own graph outside the timing; computing one maximum flow
per rank is what is timed.

Run alone: ``python benchmarks/optimality_test.py ENGINE TOPOLOGY KEY=VALUE...`` prints one JSON line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import collopt

CASES = (("dgx-a100", "boxes=2"), ("mi250", "boxes=2"), ("mi250", "boxes=8"))
ENGINES = ("collopt", "networkx", "ortools")
REPEATS = 5

IntArray = npt.NDArray[np.int64]


class Network(NamedTuple):
    """A source, the ranks, the switches; all capacities at the optimal rate."""

    num_ranks: int
    num_nodes: int
    tails: IntArray
    heads: IntArray
    capacities: IntArray
    needed: int


def optimal_network(topology: collopt.Topology) -> Network:
    """Scale links by the optimum and add the source, which is the last node."""
    tails, heads, capacities, unit = topology.arrays
    rate = collopt.bound(topology, "allgather").inverse_rate * unit
    ranks, source = np.arange(topology.num_ranks), len(topology.nodes)
    return Network(
        len(ranks),
        source + 1,
        np.concatenate([tails, np.full(len(ranks), source)]),
        np.concatenate([heads, ranks]),
        np.concatenate([capacities * rate.numerator, np.full(len(ranks), rate.denominator)]),
        len(ranks) * rate.denominator,
    )


def by_collopt(network: Network) -> Callable[[int], int]:
    """Return ours as a function from sink to flow value."""
    from collopt.solvers.flows.max_flow import flow_network, solve_network

    graph = flow_network(network.num_nodes, network.tails, network.heads, network.capacities)
    return lambda sink: solve_network(graph, network.num_nodes - 1, sink).value


def by_networkx(network: Network) -> Callable[[int], int]:
    """Return networkx's default algorithm as a function from sink to flow value."""
    import networkx as nx

    graph = nx.DiGraph()
    for tail, head, capacity in zip(network.tails, network.heads, network.capacities, strict=True):
        graph.add_edge(int(tail), int(head), capacity=int(capacity))
    return lambda sink: int(nx.maximum_flow_value(graph, network.num_nodes - 1, sink))


def by_ortools(network: Network) -> Callable[[int], int]:
    """Return OR-Tools' max flow as a function from sink to flow value."""
    from ortools.graph.python import max_flow

    solver = max_flow.SimpleMaxFlow()
    solver.add_arcs_with_capacity(network.tails, network.heads, network.capacities)

    def flow(sink: int) -> int:
        if solver.solve(network.num_nodes - 1, sink) != solver.OPTIMAL:
            raise RuntimeError(f"OR-Tools found no maximum flow for sink {sink}")
        return int(solver.optimal_flow())

    return flow


def seconds_per_test(engine: str, topology: collopt.Topology) -> float:
    """Median CPU time of testing all sinks; every engine must find that each rank receives everything."""
    network = optimal_network(topology)
    flow = {"collopt": by_collopt, "networkx": by_networkx, "ortools": by_ortools}[engine](network)
    times = []
    for _ in range(REPEATS + 1):
        start = time.process_time()
        values = {flow(sink) for sink in range(network.num_ranks)}
        times.append(time.process_time() - start)
        if values != {network.needed}:
            raise RuntimeError(f"{engine} finds flows {values}; every rank should receive {network.needed}")
    return float(np.median(times[1:]))


def measure() -> list[dict[str, object]]:
    """Run every engine on every case; ratios are against ours in the same run."""
    rows: list[dict[str, object]] = []
    for case in CASES:
        seconds = {}
        for engine in ENGINES:
            command = [sys.executable, __file__, engine, *case]
            seconds[engine] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        rows.extend(
            {
                "benchmark": "optimality test",
                "case": " ".join(case),
                "engine": engine,
                "cpu_s": seconds[engine],
                "ratio": seconds[engine] / seconds["collopt"],
            }
            for engine in ENGINES
        )
    return rows


if __name__ == "__main__":
    options = dict(argument.split("=", 1) for argument in sys.argv[3:])
    print(json.dumps(seconds_per_test(sys.argv[1], collopt.topologies.build(sys.argv[2], **options))))
