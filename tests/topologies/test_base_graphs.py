"""Complete bipartite graphs, Hamming graphs and Diamond."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from collopt.errors import TopologyError
from collopt.topologies import Topology, complete, complete_bipartite, diamond, hamming, hypercube


def pairs(topology: Topology) -> set[tuple[int, int]]:
    """Tails and heads."""
    graph = topology.direct_graph()
    return set(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))


@pytest.mark.parametrize("degree", [1, 2, 5])
def test_complete_bipartite_graphs_link_the_two_sides(degree: int) -> None:
    """Each node with all on the other side, both ways."""
    nodes = range(2 * degree)
    expected = {(one, other) for one, other in product(nodes, repeat=2) if (one < degree) != (other < degree)}
    assert pairs(complete_bipartite(degree)) == expected


@pytest.mark.parametrize(("dimension", "size"), [(1, 4), (2, 3), (3, 2), (2, 5), (3, 3)])
def test_neighbors_in_a_hamming_graph_differ_in_one_letter(dimension: int, size: int) -> None:
    """Words in order; distances count the letters that differ."""
    words = list(product(range(size), repeat=dimension))
    distances = hamming(dimension, size).direct_graph().distances
    for i, one in enumerate(words):
        for j, other in enumerate(words):
            assert distances[i, j] == sum(a != b for a, b in zip(one, other, strict=True))


def test_hamming_graphs_of_one_place_or_two_letters_have_other_names() -> None:
    """Complete graphs and hypercubes, numbered alike."""
    assert pairs(hamming(1, 7)) == pairs(complete(7))
    assert pairs(hamming(4, 2)) == pairs(hypercube(4))


def test_diamond_is_the_graph_that_fits_the_printed_figures() -> None:
    """8 nodes, two arcs out of and into each, 3 hops at most, and two nodes with the same two heads."""
    graph = diamond().direct_graph()
    assert (graph.degree, graph.diameter, graph.is_simple) == (2, 3, True)
    assert int(graph.distances.sum()) == 106
    heads = graph.heads.reshape(8, 2).tolist()
    assert heads == [[1, 2], [2, 3], [4, 5], [0, 6], [0, 6], [3, 7], [5, 7], [1, 4]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: complete_bipartite(0), "degree is 0; expected a whole number from 1 to 724"),
        (lambda: complete_bipartite(725), "degree is 725"),
        (lambda: complete_bipartite(2.0), "degree is 2.0"),
        (lambda: hamming(0, 3), "dimension is 0"),
        (lambda: hamming(2, 1), "size is 1; expected a whole number from 2"),
        (lambda: hamming(2, False), "size is False"),
        (lambda: hamming(16, 65536), r"the number of nodes of H\(16, 65536\) is"),
        (lambda: hamming(1, 65536), r"H\(1, 65536\) would have 4294901760 links"),
        (lambda: diamond(bandwidth="x"), "bandwidth of Diamond is 'x'; expected a positive number"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], Topology], message: str) -> None:
    """In one line that says what was expected."""
    with pytest.raises(TopologyError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
