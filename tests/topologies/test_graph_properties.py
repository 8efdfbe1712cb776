"""Properties of graphs against what the direct-connect paper prints of them, and against definitions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.errors import BoundError, TopologyError, UnsupportedError
from collopt.topologies import (
    DirectGraph,
    average_distance,
    bandwidth_optimum,
    bidirectional_ring,
    complete,
    complete_bipartite,
    diamond,
    distance_sum,
    generalized_kautz,
    hamming,
    hypercube,
    intersection_array,
    is_distance_regular,
    is_moore_optimal,
    is_reverse_symmetric,
    is_vertex_transitive,
    kautz,
    modified_de_bruijn,
    moore_bound,
    moore_steps,
    reverse_symmetry,
    torus,
    undirected_moore_bound,
    undirected_moore_steps,
    unidirectional_ring,
)
from regular_graphs import BASES, regular_graphs
from sample_sizes import examples

NX: Any = nx
"""Without type information, as most of networkx."""


@given(st.integers(1, 12), st.integers(2, 10**6))
def test_moore_steps_are_the_least_that_reach_all_nodes(degree: int, nodes: int) -> None:
    """Directed, and undirected of degree 2 or more."""
    if degree > 1 or nodes < 60000:
        steps = moore_steps(nodes, degree)
        assert moore_bound(degree, steps) >= nodes > moore_bound(degree, steps - 1)
    if degree > 2 or (degree == 2 and nodes < 60000):
        steps = undirected_moore_steps(nodes, degree)
        assert undirected_moore_bound(degree, steps) >= nodes > undirected_moore_bound(degree, steps - 1)


def test_the_bounds_are_those_of_the_paper() -> None:
    """Table 4 has 5 steps and 1023/1024 as the least; one node needs none."""
    assert (moore_steps(1024, 4), bandwidth_optimum(1024)) == (5, Fraction(1023, 1024))
    assert [undirected_moore_steps(nodes, 4) for nodes in (21, 189, 728)] == [3, 5, 6]
    assert (moore_bound(3, 0), undirected_moore_bound(3, 0), moore_steps(1, 3), undirected_moore_steps(1, 3)) == (
        1,
        1,
        0,
        0,
    )
    assert (moore_steps(7, 1), undirected_moore_steps(2, 1), undirected_moore_steps(7, 2)) == (6, 1, 3)


def test_numbers_out_of_range_are_refused() -> None:
    """No nodes, no ports, and a degree with which two-way links cannot connect."""
    for call in (lambda: moore_steps(0, 2), lambda: moore_steps(4, 0), lambda: bandwidth_optimum(0)):
        with pytest.raises(TopologyError, match="expected a whole number"):
            call()
    with pytest.raises(TopologyError, match="diameter is -1"):
        moore_bound(2, -1)
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
        assert is_moore_optimal(topology.direct_graph())
    for topology in (unidirectional_ring(2, 5), bidirectional_ring(2, 9), torus(4, 4)):
        assert not is_moore_optimal(topology.direct_graph())


def test_vertex_transitivity() -> None:
    """Cayley graphs have it; Diamond has five kinds of nodes."""
    for topology in (hypercube(4), torus(3, 5), complete_bipartite(3), unidirectional_ring(3, 4), hamming(2, 4)):
        assert is_vertex_transitive(topology.direct_graph())
    for topology in (diamond(), kautz(2, 3)):
        assert not is_vertex_transitive(topology.direct_graph())


@pytest.mark.parametrize(
    "graph",
    [
        nx.petersen_graph(),
        nx.heawood_graph(),
        nx.octahedral_graph(),
        nx.dodecahedral_graph(),
        NX.pappus_graph(),
        nx.cycle_graph(7),
        nx.circulant_graph(9, [1, 2]),
        nx.frucht_graph(),
        nx.truncated_tetrahedron_graph(),
    ],
)
def test_intersection_arrays_agree_with_networkx(graph: nx.Graph) -> None:
    """And there is none where networkx finds the graph not distance-regular."""
    nodes = sorted(graph)
    arcs = [(nodes.index(tail), nodes.index(head)) for tail, head in graph.to_directed().edges]
    direct = DirectGraph.from_arcs(len(nodes), arcs, "known")
    assert is_distance_regular(direct) is NX.is_distance_regular(graph)
    if is_distance_regular(direct):
        farther, nearer = NX.intersection_array(graph)
        assert intersection_array(direct) == (tuple(farther), tuple(nearer))


@pytest.mark.parametrize("topology", [hypercube(3), hamming(2, 3), complete_bipartite(3), torus(3, 4), complete(4)])
def test_distance_regularity_is_that_of_definition_17(topology: object) -> None:
    """Counting the nodes at distances i and j from x and y, for all of them."""
    graph = topology.direct_graph()  # type: ignore[arg-type]
    distances = graph.distances
    counts: dict[int, set[bytes]] = {}
    for x in range(graph.num_nodes):
        for y in range(graph.num_nodes):
            table = np.zeros((graph.diameter + 1,) * 2, dtype=int)
            np.add.at(table, (distances[x], distances[y]), 1)
            counts.setdefault(int(distances[x, y]), set()).add(table.tobytes())
    assert is_distance_regular(graph) is all(len(each) == 1 for each in counts.values())


def test_directed_graphs_and_parallel_arcs_are_not_distance_regular() -> None:
    """The definition is for simple undirected graphs."""
    assert not is_distance_regular(unidirectional_ring(1, 5).direct_graph())
    assert not is_distance_regular(bidirectional_ring(4, 5).direct_graph())


@given(regular_graphs())
@settings(max_examples=examples(30))
def test_distances_add_up_as_networkx_says(graph: DirectGraph) -> None:
    """Of all ordered pairs."""
    known = nx.DiGraph(list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)))
    total = sum(sum(row.values()) for _, row in nx.all_pairs_shortest_path_length(known))
    assert distance_sum(graph) == total
    assert average_distance(graph) == Fraction(total, graph.num_nodes * (graph.num_nodes - 1))


def test_graphs_that_are_not_connected_have_no_distances() -> None:
    """Said in one sentence; symmetry can be asked for nevertheless."""
    graph = DirectGraph.from_arcs(4, [(0, 1), (1, 0), (2, 3), (3, 2)], "two pairs")
    for ask in (average_distance, is_moore_optimal, is_distance_regular):
        with pytest.raises(BoundError, match="cannot reach"):
            ask(graph)
    assert is_vertex_transitive(graph)
    assert is_reverse_symmetric(graph)


@pytest.mark.parametrize("graph", BASES, ids=lambda graph: graph.name)
def test_no_base_has_a_smaller_diameter_than_the_moore_bound_allows(graph: DirectGraph) -> None:
    """Self-loops and parallel arcs included."""
    assert graph.diameter >= moore_steps(graph.num_nodes, graph.degree)
