"""All-to-all on the networks of Table 7 of the direct-connect paper: linear program against concurrent flow.

For each network the rate is bounded as `collopt.planners.all_to_all_rate_bounds` does by default, within 1 %.  Up to
the size that the linear program takes half a minute for, two ways are compared on symmetries found before: linear
program (3) of one source per orbit, with an interior point and exact bounds of what it left, and the concurrent flow
within 1 %.  The program's gap is about 1e-6, so a ratio above 1 is the price of more digits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

import numpy as np

from collopt.planners.all_to_all.flows import MAX_CERTIFIED_COLUMNS, all_to_all_rate_bounds, certified_rate
from collopt.solvers.flows.concurrent_flow import concurrent_flow
from collopt.topologies import (
    DirectGraph,
    automorphisms,
    cartesian_power,
    cartesian_product,
    circulant,
    complete_bipartite,
    de_bruijn,
    diamond,
    distance_regular,
    generalized_kautz,
    hypercube,
    line_graph,
    modified_de_bruijn,
    torus,
    unidirectional_ring,
)
from collopt.topologies.symmetry.isomorphism import link_orbits

GAP = Fraction(1, 100)

T = TypeVar("T")


def rings(*sizes: int) -> DirectGraph:
    """Return a product of one-way rings."""
    return cartesian_product(*(unidirectional_ring(1, size).direct_graph() for size in sizes))


def powers(base: DirectGraph) -> DirectGraph:
    """Return the base times itself."""
    return cartesian_power(base, 2)


K44, DIAMOND = complete_bipartite(4).direct_graph(), diamond().direct_graph()
DIST_REG, CIRCULANT = distance_regular(32).direct_graph(), circulant(16, (3, 4)).direct_graph()
DBJ_MOD_2_4, DBJ_MOD_4_2 = modified_de_bruijn(2, 4).direct_graph(), modified_de_bruijn(4, 2).direct_graph()
CASES: tuple[tuple[Callable[[], DirectGraph], str], ...] = (
    (lambda: line_graph(K44), "5.71e-2"),
    (lambda: DIST_REG, "5.26e-2"),
    (lambda: generalized_kautz(4, 64).direct_graph(), "2.17e-2"),
    (lambda: line_graph(DBJ_MOD_4_2), "2.21e-2, of another cycle"),
    (lambda: powers(DIAMOND), "1.87e-2"),
    (lambda: line_graph(K44, 2), "9.89e-3"),
    (lambda: line_graph(DIST_REG), "9.26e-3"),
    (lambda: de_bruijn(4, 4).direct_graph(), "4.04e-3"),
    (lambda: line_graph(DBJ_MOD_4_2, 2), "4.10e-3, of another cycle"),
    (lambda: line_graph(powers(DIAMOND)), "3.62e-3"),
    (lambda: powers(DBJ_MOD_2_4), "2.94e-3"),
    (lambda: line_graph(K44, 3), "1.88e-3"),
    (lambda: line_graph(DIST_REG, 2), "1.78e-3"),
    (lambda: line_graph(rings(4, 4, 4, 2)), "1.12e-3"),
    (lambda: rings(4, 4, 4, 8), "5.58e-4"),
    (lambda: torus(32, 32).direct_graph(), ""),
    (lambda: hypercube(10).direct_graph(), ""),
    (lambda: rings(4, 8, 4, 8), "2.79e-4"),
    (lambda: generalized_kautz(4, 1024).direct_graph(), "8.01e-4"),
    (lambda: line_graph(CIRCULANT, 3), "8.12e-4, more than its hops allow"),
    (lambda: line_graph(powers(DIAMOND), 2), "7.34e-4"),
    (lambda: line_graph(powers(DBJ_MOD_2_4)), "6.18e-4"),
    (lambda: line_graph(DBJ_MOD_4_2, 3), ""),
)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    """Return what the work returns, and its CPU seconds."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def measured(graph: DirectGraph, printed: str) -> dict[str, object]:
    """Bound one network's rate by default, and by both ways."""
    (lower, upper), taken = timed(lambda: all_to_all_rate_bounds(graph, GAP))
    alike, searched = timed(lambda: automorphisms(graph))
    demands = np.broadcast_to(np.int64(1), (graph.num_nodes, graph.num_nodes))
    columns = len(link_orbits(*graph.adjacency, demands, alike).sources) * len(graph.adjacency.tails)
    row: dict[str, object] = {
        "benchmark": "all-to-all",
        "case": graph.name,
        "columns": columns,
        "printed_rate": printed,
        "lower_rate": f"{float(lower):.5e}",
        "upper_rate": f"{float(upper):.5e}",
        "gap": float(1 - lower / upper),
        "cpu_s": taken,
        "symmetries_cpu_s": searched,
    }
    if columns <= MAX_CERTIFIED_COLUMNS:
        flow, flow_s = timed(
            lambda: concurrent_flow(graph.num_nodes, *graph.adjacency, demands, gap=GAP, automorphisms=alike)
        )
        bounds, program_s = timed(lambda: certified_rate(graph, alike))
        if bounds[0] > min(upper, flow.upper) or bounds[1] < max(lower, flow.lower):
            raise RuntimeError(f"the bounds on the rate of {graph} contradict each other")
        row |= {"flow_cpu_s": flow_s, "programs_cpu_s": program_s, "ratio": program_s / flow_s}
    return row


def measure() -> list[dict[str, object]]:
    """Bound the rates of all networks; ratios are those of the linear program to the concurrent flow."""
    measured(generalized_kautz(4, 30).direct_graph(), "")  # compiling and importing is not what is compared
    return [measured(made(), printed) for made, printed in CASES]


if __name__ == "__main__":
    for each in measure():
        print(
            {name: round(value, 3) if isinstance(value, float) else value for name, value in each.items()}, flush=True
        )
