"""Bounds of all-to-all throughput."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import BoundError
from collopt.solvers.flows.shortest_paths import all_to_all_bounds
from collopt.topologies import (
    DirectGraph,
    complete,
    complete_bipartite,
    diamond,
    generalized_kautz,
    hypercube,
    line_graph,
    torus,
)
from sample_sizes import examples


def bounds(graph: DirectGraph) -> tuple[Fraction, Fraction]:
    """Both bounds of a graph."""
    return all_to_all_bounds(graph.num_nodes, *graph.adjacency)


@pytest.mark.parametrize(
    "topology", [complete(5), hypercube(4), torus(5, 5), torus(3, 3, 3)], ids=lambda topology: topology.name
)
def test_both_bounds_are_equal_where_all_links_are_alike(topology: object) -> None:
    """Up to what rounding takes, and then never the wrong way."""
    graph = topology.direct_graph()  # type: ignore[arg-type]
    lower, upper = bounds(graph)
    assert upper == Fraction(graph.num_arcs, int(graph.distances.sum()))
    assert upper * (1 - Fraction(1, 10**6)) <= lower <= upper


def test_a_ring_by_hand() -> None:
    """Each link of a one-way ring of 4 carries 1 + 2 + 3 pairs."""
    ring = DirectGraph.from_arcs(4, [(0, 1), (1, 2), (2, 3), (3, 0)], "ring")
    assert bounds(ring) == (Fraction(1, 6), Fraction(1, 6))


@pytest.mark.parametrize(
    ("graph", "optimum"),
    [
        (diamond().graph, 0.15),
        (generalized_kautz(4, 64).graph, 2.17077e-2),
        (line_graph(complete_bipartite(4).graph), 5.71429e-2),
    ],
    ids=["Diamond", "Kautz", "line graph"],
)
def test_the_optimum_lies_between(graph: DirectGraph, optimum: float) -> None:
    """The optima are those of linear program (3), and the hop bound where it is reached."""
    lower, upper = bounds(graph)
    assert lower <= Fraction(optimum) * (1 + Fraction(1, 10**5))
    assert upper >= Fraction(optimum) * (1 - Fraction(1, 10**5))


@given(st.integers(2, 12), st.data())
@settings(max_examples=examples(30))
def test_no_link_carries_more_than_its_share_and_upper_bounds_hold(size: int, data: st.DataObject) -> None:
    """On random graphs around a ring."""
    ends = st.integers(0, size - 1)
    more = data.draw(st.lists(st.tuples(ends, ends), max_size=20))
    graph = DirectGraph.from_arcs(size, [*((node, (node + 1) % size) for node in range(size)), *more], "random")
    lower, upper = bounds(graph)
    assert 0 < lower <= upper


def test_nodes_out_of_reach_are_told() -> None:
    """There is no rate at all."""
    with pytest.raises(BoundError, match="cannot reach"):
        bounds(DirectGraph.from_arcs(3, [(0, 1), (1, 0), (2, 0)], "one way"))
