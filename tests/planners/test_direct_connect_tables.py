"""The tables of the direct-connect paper, recomputed from graphs and verified schedules."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import pytest
from papers.direct_connect_tables import TABLE_8, TABLES_4_AND_7, Printed

from collopt import topologies
from collopt.planners import bfb_cost, bfb_schedule
from collopt.schedules import StepCost, base_schedule, step_cost, verified_loads
from collopt.topologies import (
    Topology,
    bandwidth_optimum,
    bidirectional_ring,
    circulant,
    complete,
    complete_bipartite,
    de_bruijn,
    diamond,
    directed_circulant,
    distance_regular,
    generalized_kautz,
    hamming,
    hypercube,
    kautz,
    modified_de_bruijn,
    moore_steps,
    torus,
    undirected_moore_steps,
    unidirectional_ring,
)
from collopt.topologies.direct_connect.optimal_broadcasts import base_schedule_names
from graph_symmetry import is_reverse_symmetric

EXACT = {
    "Π(4, 64)": Fraction(21, 16),
    "Π(4, 1024)": Fraction(341, 256),
    "DBJ(4, 4)": Fraction(85, 64),
    "L^2(K(4, 4))": Fraction(33, 32),
    "L^3(K(4, 4))": Fraction(133, 128),
    "L^3(C(16, {3, 4}))": Fraction(261, 256),
    "L(Diamond^□2)": Fraction(1),
}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=f"{row.nodes}-{row.construction}", marks=[pytest.mark.slow] if row.nodes >= 512 else [])
        for row in TABLES_4_AND_7
    ],
)
def test_the_verified_schedules_of_tables_4_and_7_cost_what_is_printed(row: Printed) -> None:
    """T_L and T_B come from what the schedule puts on the links, and round to the printed figures."""
    graph, schedule = row.construction.graph(), row.construction.schedule()
    assert (graph.num_nodes, graph.degree) == (row.nodes, 4)
    verified_loads(schedule, Topology.from_graph(graph))
    cost = step_cost(graph, schedule)
    assert cost.steps == row.steps
    # 21/16 is printed as 1.312: half a unit of the last digit is rounded to even.
    assert f"{float(cost.bandwidth_factor):.3f}" == row.decimals
    assert cost.bandwidth_factor == EXACT.get(row.construction.name, cost.bandwidth_factor)


@pytest.mark.parametrize(
    ("nodes", "steps", "moore", "undirected"),
    [pytest.param(*row, marks=[pytest.mark.slow] if row[0] > 80 else []) for row in TABLE_8],
)
def test_the_distance_regular_graphs_of_table_8_have_optimal_broadcasts(
    nodes: int, steps: int, moore: int, undirected: int
) -> None:
    """T_L, both Moore optima, and a verified breadth-first schedule with T_B = (N - 1) / N."""
    graph = distance_regular(nodes).direct_graph()
    assert (moore_steps(nodes, 4), undirected_moore_steps(nodes, 4)) == (moore, undirected)
    schedule = bfb_schedule(graph)
    verified_loads(schedule, Topology.from_graph(graph))
    assert step_cost(graph, schedule) == StepCost(steps, bandwidth_optimum(nodes))


class Flags(NamedTuple):
    """A row of Table 9 for one size; `breadth_first` says that schedules of this kind are optimal if any are."""

    topology: topologies.Topology
    reverse_symmetric: bool
    optimal: bool
    breadth_first: bool = True
    loops: bool = False
    parallel: bool = False


TABLE_9 = [
    *(Flags(complete(m), True, True) for m in (2, 5, 8)),
    *(Flags(complete_bipartite(d), True, True) for d in (2, 3, 4)),
    *(Flags(hamming(n, q), True, True) for n, q in ((2, 3), (3, 3), (2, 4), (4, 2))),
    *(Flags(kautz(d, n), True, n == 0) for d, n in ((2, 0), (2, 1), (2, 3), (3, 2), (4, 2))),
    # Some sizes are reverse-symmetric, those of Kautz and de Bruijn graphs among them; the table says no for all.
    *(Flags(generalized_kautz(d, m), False, False, loops=m % (d + 1) != 0) for d, m in ((2, 7), (3, 11), (4, 45))),
    *(Flags(generalized_kautz(d, d + 1), True, True) for d in (2, 4)),
    Flags(generalized_kautz(4, 64), True, False, loops=True),
    *(Flags(circulant(n, (a, b)), True, True) for n, a, b in ((7, 2, 3), (11, 2, 3), (16, 3, 4), (13, 1, 5))),
    *(Flags(directed_circulant(d), True, True) for d in (2, 3, 4, 8)),
    *(Flags(bidirectional_ring(d, m), True, True, parallel=d > 2) for d, m in ((2, 3), (2, 8), (4, 5), (6, 6))),
    *(Flags(unidirectional_ring(d, m), True, True, parallel=d > 1) for d, m in ((1, 2), (1, 8), (3, 5))),
    Flags(diamond(), False, True, breadth_first=False),
    # The table calls n = 1 optimal: so is the complete graph that is left without the port that the self-loop takes up.
    *(Flags(de_bruijn(d, n), True, False, loops=True) for d, n in ((2, 1), (3, 1), (2, 3), (3, 2), (4, 2))),
    Flags(modified_de_bruijn(2, 3), True, True, breadth_first=False),
    *(Flags(modified_de_bruijn(d, n), False, True, breadth_first=False) for d, n in ((2, 4), (3, 2), (4, 2))),
    *(Flags(distance_regular(n), True, True) for n in (6, 14, 26, 35)),
]


@pytest.mark.parametrize("row", TABLE_9, ids=lambda row: row.topology.name)
def test_the_flags_of_table_9_hold(row: Flags) -> None:
    """All by computation; a graph without an optimal breadth-first schedule has one that is stored, and verified."""
    graph = row.topology.direct_graph()
    assert bool(graph.num_self_loops) == row.loops
    assert graph.has_parallel_links == row.parallel
    assert is_reverse_symmetric(graph) == row.reverse_symmetric
    best = bandwidth_optimum(graph.num_nodes)
    breadth_first = bfb_cost(graph)
    assert breadth_first.steps == graph.diameter
    if row.breadth_first:
        assert (breadth_first.bandwidth_factor == best) == row.optimal
    else:
        assert breadth_first.bandwidth_factor > best
        schedule = base_schedule(graph.name)
        verified_loads(schedule, Topology.from_graph(graph))
        steps = dict(zip(base_schedule_names(), (3, 4, 5, 3, 3), strict=True))[graph.name]
        assert step_cost(graph, schedule) == (steps, best)


TABLE_6 = [
    *(hypercube(dimension) for dimension in (2, 3, 4, 5, 6)),
    pytest.param(hypercube(10), marks=pytest.mark.slow),
    *(torus(side, side) for side in (2, 3, 4, 5, 6)),
    torus(50, 50),
]


@pytest.mark.parametrize("topology", TABLE_6, ids=lambda topology: topology.name)
def test_the_networks_of_table_6_have_optimal_breadth_first_schedules(topology: topologies.Topology) -> None:
    """T_L is the diameter and T_B = (N - 1) / N, as Figure 10 shows for BFB."""
    graph = topology.direct_graph()
    assert bfb_cost(graph) == StepCost(graph.diameter, bandwidth_optimum(graph.num_nodes))
    if graph.num_nodes <= 1024:
        schedule = bfb_schedule(graph)
        verified_loads(schedule, topology)
        assert step_cost(graph, schedule) == bfb_cost(graph)
