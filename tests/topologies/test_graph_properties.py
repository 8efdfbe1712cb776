"""Properties of graphs against what the direct-connect paper prints of them, and against definitions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collopt.errors import BoundError, TopologyError, UnsupportedError
from collopt.topologies import (
    DirectGraph,
    bandwidth_optimum,
    bidirectional_ring,
    complete,
    complete_bipartite,
    diamond,
    generalized_kautz,
    hamming,
    hypercube,
    kautz,
    modified_de_bruijn,
    moore_steps,
    reverse_symmetry,
    torus,
    undirected_moore_steps,
    unidirectional_ring,
)
from graph_symmetry import is_reverse_symmetric, orbits
from regular_graphs import BASES


@given(st.integers(1, 12), st.integers(2, 10**6))
def test_moore_steps_are_the_least_that_reach_all_nodes(degree: int, nodes: int) -> None:
    """Directed, and undirected of degree 2 or more."""
    if degree > 1 or nodes < 60000:
        steps = moore_steps(nodes, degree)
        least = sum(degree**hops for hops in range(steps))
        assert least + degree**steps >= nodes > least
    if degree > 2 or (degree == 2 and nodes < 60000):
        steps = undirected_moore_steps(nodes, degree)
        least = 1 + degree * sum((degree - 1) ** hops for hops in range(steps - 1))
        assert least + degree * (degree - 1) ** (steps - 1) >= nodes > least


def test_the_bounds_are_those_of_the_paper() -> None:
    """Table 4 has 5 steps and 1023/1024 as the least; one node needs none."""
    assert (moore_steps(1024, 4), bandwidth_optimum(1024)) == (5, Fraction(1023, 1024))
    assert [undirected_moore_steps(nodes, 4) for nodes in (21, 189, 728)] == [3, 5, 6]
    assert (moore_steps(1, 3), undirected_moore_steps(1, 3)) == (0, 0)
    assert (moore_steps(7, 1), undirected_moore_steps(2, 1), undirected_moore_steps(7, 2)) == (6, 1, 3)


def test_numbers_out_of_range_are_refused() -> None:
    """No nodes, no ports, and a degree with which two-way links cannot connect."""
    for call in (lambda: moore_steps(0, 2), lambda: moore_steps(4, 0), lambda: bandwidth_optimum(0)):
        with pytest.raises(TopologyError, match="expected a whole number"):
            call()
    with pytest.raises(UnsupportedError, match="cannot connect 3 nodes"):
        undirected_moore_steps(3, 1)


SYMMETRY = [
    (complete(5), True),
    (complete_bipartite(3), True),
    (hamming(2, 3), True),
    (kautz(2, 2), True),
    (bidirectional_ring(4, 5), True),
    (unidirectional_ring(2, 5), True),
    (diamond(), False),
    (generalized_kautz(2, 7), False),
    (modified_de_bruijn(2, 3), True),
    (modified_de_bruijn(2, 4), False),
    (modified_de_bruijn(3, 2), False),
    (modified_de_bruijn(4, 2), False),
]


@pytest.mark.parametrize(("topology", "expected"), SYMMETRY, ids=lambda value: getattr(value, "name", str(value)))
def test_reverse_symmetry_is_as_in_table_9(topology: object, expected: bool) -> None:
    """By computation; a symmetry that is found reverses every arc."""
    graph = topology.direct_graph()  # type: ignore[arg-type]
    assert is_reverse_symmetric(graph) is expected
    if (mapping := reverse_symmetry(graph)) is not None:
        turned = sorted(zip(mapping[graph.heads].tolist(), mapping[graph.tails].tolist(), strict=True))
        assert turned == list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))


def test_moore_optimality_asks_for_the_diameter() -> None:
    """Kautz graphs and complete bipartite ones have the least, rings and tori do not."""
    for topology in (kautz(2, 3), kautz(3, 2), complete_bipartite(4), complete(6), diamond()):
        graph = topology.direct_graph()
        assert graph.diameter == moore_steps(graph.num_nodes, graph.degree)
    for topology in (unidirectional_ring(2, 5), bidirectional_ring(2, 9), torus(4, 4)):
        graph = topology.direct_graph()
        assert graph.diameter > moore_steps(graph.num_nodes, graph.degree)


def test_vertex_transitivity() -> None:
    """Cayley graphs have it; Diamond has five kinds of nodes."""
    for topology in (hypercube(4), torus(3, 5), complete_bipartite(3), unidirectional_ring(3, 4), hamming(2, 4)):
        assert not orbits(topology.direct_graph()).any()
    for topology in (diamond(), kautz(2, 3)):
        assert orbits(topology.direct_graph()).any()


def test_graphs_that_are_not_connected_have_no_distances() -> None:
    """Said in one sentence; symmetry can be asked for nevertheless."""
    graph = DirectGraph.from_arcs(4, [(0, 1), (1, 0), (2, 3), (3, 2)], "two pairs")
    with pytest.raises(BoundError, match="cannot reach"):
        _ = graph.diameter
    assert not orbits(graph).any()
    assert is_reverse_symmetric(graph)


@pytest.mark.parametrize("graph", BASES, ids=lambda graph: graph.name)
def test_no_base_has_a_smaller_diameter_than_the_moore_bound_allows(graph: DirectGraph) -> None:
    """Self-loops and parallel arcs included."""
    assert graph.diameter >= moore_steps(graph.num_nodes, graph.degree)
