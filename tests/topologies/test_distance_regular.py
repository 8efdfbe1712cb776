"""The distance-regular graphs of Table 8 of the direct-connect paper, and the finite geometries behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest

from collopt.topologies import DirectGraph, distance_regular
from collopt.topologies.direct_connect.distance_regular import (
    Lines,
    incidence_edges,
    projective_plane,
    split_cayley_hexagon,
    symplectic_quadrangle,
)

TABLE_8 = {6: 2, 9: 2, 10: 3, 14: 3, 15: 3, 16: 4, 21: 3, 26: 3, 32: 4, 35: 3, 45: 4, 70: 7, 80: 4, 189: 6, 728: 6}
"""T_L in units of alpha, by number of nodes."""

INTERSECTION_ARRAYS = {
    6: "4 1 / 1 4",
    9: "4 2 / 1 2",
    10: "4 3 1 / 1 3 4",
    14: "4 3 2 / 1 2 4",
    15: "4 2 1 / 1 1 4",
    16: "4 3 2 1 / 1 2 3 4",
    21: "4 2 2 / 1 1 2",
    26: "4 3 3 / 1 1 4",
    32: "4 3 3 1 / 1 1 3 4",
    35: "4 3 3 / 1 1 2",
    45: "4 2 2 2 / 1 1 1 2",
    70: "4 3 3 2 2 1 1 / 1 1 2 2 3 3 4",
    80: "4 3 3 3 / 1 1 1 4",
    189: "4 2 2 2 2 2 / 1 1 1 1 1 2",
    728: "4 3 3 3 3 3 / 1 1 1 1 1 4",
}
"""Neighbors one hop further away at distances 0, 1, ..., and one hop nearer at 1, 2, ..., as textbooks list them."""


def intersection_array(graph: DirectGraph) -> str:
    """What every two nodes at the same distance agree on; fails if they do not."""
    adjacency = np.zeros((graph.num_nodes, graph.num_nodes), dtype=np.int64)
    adjacency[graph.tails, graph.heads] = 1
    lists: dict[int, list[int]] = {1: [], -1: []}
    for hops in range(graph.diameter + 1):
        for change, found in lists.items():
            counts = ((graph.distances == hops + change) @ adjacency)[graph.distances == hops]
            assert (counts == counts[0]).all()
            found.append(int(counts[0]))
    return " / ".join(" ".join(map(str, each)) for each in (lists[1][:-1], lists[-1][1:]))


@pytest.mark.parametrize("n", TABLE_8)
def test_sizes_and_steps_are_those_of_table_8(n: int) -> None:
    """T_L is the diameter; every graph is undirected, of degree 4, without loops or parallel links."""
    graph = distance_regular(n).direct_graph()
    assert (graph.num_nodes, graph.degree, graph.diameter) == (n, 4, TABLE_8[n])
    assert (graph.is_simple, graph.is_bidirectional, graph.name) == (True, True, f"DistReg(4, {n})")


@pytest.mark.parametrize("n", [*list(TABLE_8)[:-1], pytest.param(728, marks=pytest.mark.slow)])
def test_graphs_are_distance_regular_with_the_known_intersection_array(n: int) -> None:
    """Equal numbers at all pairs of nodes that are equally far apart are what the definition comes down to."""
    assert intersection_array(distance_regular(n).direct_graph()) == INTERSECTION_ARRAYS[n]


@pytest.mark.parametrize(
    ("geometry", "order", "points", "gonality"),
    [(projective_plane, 3, 13, 3), (symplectic_quadrangle, 3, 40, 4), (split_cayley_hexagon, 2, 63, 6)],
)
def test_incidence_graphs_of_generalized_polygons_have_twice_their_diameter_as_girth(
    geometry: Callable[[int], Lines], order: int, points: int, gonality: int
) -> None:
    """Which defines a generalized n-gon; order (q, q) means q + 1 points on each line and lines through each point."""
    lines = geometry(order)
    assert len(lines) == points
    assert {len(set(line)) for line in lines} == {order + 1}
    assert Counter(Counter(point for line in lines for point in line).values()) == {order + 1: points}
    graph = nx.Graph(incidence_edges(lines))
    assert nx.diameter(graph) == gonality
    assert nx.girth(graph) == 2 * gonality
