"""Graphs of direct-connect families, written out by their definitions."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, product

import networkx as nx
import numpy as np
import pytest

from collopt.topologies import (
    Topology,
    complete_bipartite,
    de_bruijn,
    diamond,
    double_binary_tree,
    generalized_kautz,
    hamming,
    hypercube,
    kautz,
    modified_de_bruijn,
    torus,
    twisted_hypercube,
    twisted_torus,
)
from collopt.topologies.direct_connect.basic_graphs import REWIRED_CYCLES, double_binary_tree_parents


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


def test_diamond_is_the_graph_that_fits_the_printed_figures() -> None:
    """8 nodes, two arcs out of and into each, 3 hops at most, and two nodes with the same two heads."""
    graph = diamond().direct_graph()
    assert (graph.degree, graph.diameter, graph.is_simple) == (2, 3, True)
    assert int(graph.distances.sum()) == 106
    heads = graph.heads.reshape(8, 2).tolist()
    assert heads == [[1, 2], [2, 3], [4, 5], [0, 6], [0, 6], [3, 7], [5, 7], [1, 4]]


def arcs_of(topology: Topology) -> list[tuple[int, int]]:
    """Tails and heads in order."""
    graph = topology.direct_graph()
    return list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True))


def word_arcs(words: Iterable[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Arcs from each word to those that go on where it does, its first letter dropped."""
    listed = list(words)
    return [(i, j) for i, one in enumerate(listed) for j, other in enumerate(listed) if one[1:] == other[:-1]]


def as_networkx(topology: Topology) -> nx.MultiDiGraph:
    """All arcs, self-loops too."""
    return nx.MultiDiGraph(arcs_of(topology))


@pytest.mark.parametrize(("degree", "length"), [(1, 2), (2, 1), (2, 3), (3, 2), (4, 2)])
def test_kautz_graphs_shift_words_whose_neighboring_letters_differ(degree: int, length: int) -> None:
    """Nodes are numbered in the order of the words."""
    words = product(range(degree + 1), repeat=length + 1)
    kept = [word for word in words if all(one != other for one, other in pairwise(word))]
    assert arcs_of(kautz(degree, length)) == word_arcs(kept)


@pytest.mark.parametrize(("degree", "length"), [(2, 1), (2, 3), (3, 2), (5, 1)])
def test_de_bruijn_graphs_shift_all_words(degree: int, length: int) -> None:
    """Words of one letter are followed by themselves."""
    assert arcs_of(de_bruijn(degree, length)) == word_arcs(product(range(degree), repeat=length))


@pytest.mark.parametrize(("degree", "length"), [(2, 0), (2, 1), (2, 3), (3, 1), (3, 2), (4, 1)])
def test_kautz_graphs_are_generalized_kautz_graphs(degree: int, length: int) -> None:
    """Definition 16: of d**(n + 1) + d**n nodes, up to the numbering."""
    nodes = degree ** (length + 1) + degree**length
    ours, generalized = as_networkx(kautz(degree, length)), as_networkx(generalized_kautz(degree, nodes))
    assert nx.is_isomorphic(ours, generalized)


@pytest.mark.parametrize(("degree", "length"), REWIRED_CYCLES)
def test_the_rewired_cycle_takes_the_place_of_loops_and_2_cycles(degree: int, length: int) -> None:
    """It passes exactly through the nodes that lie on them, and all other arcs stay."""
    before, after = set(arcs_of(de_bruijn(degree, length))), set(arcs_of(modified_de_bruijn(degree, length)))
    removed = {(tail, head) for tail, head in before if (head, tail) in before}
    cycle = REWIRED_CYCLES[degree, length]
    assert sorted(cycle) == sorted({node for arc in removed for node in arc})
    added = set(zip(cycle, cycle[1:] + cycle[:1], strict=True))
    assert len(removed) == len(added) == degree**2
    assert after == (before - removed) | added
    assert not added & (before - removed)


@pytest.mark.parametrize(("rows", "columns", "twist"), [(3, 5, 2), (4, 8, 4), (2, 7, 3), (5, 4, 1)])
def test_the_twist_moves_links_that_go_round_the_first_dimension(rows: int, columns: int, twist: int) -> None:
    """The links are those written out by coordinates."""
    expected = set()
    for row in range(rows):
        for column in range(columns):
            moved = column + (twist if row == rows - 1 else 0)
            for other in ((row, (column + 1) % columns), ((row + 1) % rows, moved % columns)):
                one, two = row * columns + column, other[0] * columns + other[1]
                expected |= {(one, two), (two, one)}
    assert pairs(twisted_torus(rows, columns, twist=twist)) == expected


def test_sizes_k_and_2_k_are_twisted_by_k() -> None:
    """The twist is k whichever of the two dimensions is longer."""
    assert pairs(twisted_torus(3, 6)) == pairs(twisted_torus(3, 6, twist=3))
    place = np.arange(18).reshape(3, 6)
    turned = {(int(place.T.flat[a]), int(place.T.flat[b])) for a, b in pairs(twisted_torus(6, 3))}
    assert turned == pairs(twisted_torus(3, 6))


@pytest.mark.parametrize(("k", "diameter"), [(2, 3), (3, 4), (4, 6), (5, 7), (6, 9)])
def test_twisted_tori_of_three_dimensions_have_fewer_hops(k: int, diameter: int) -> None:
    """Both shapes of TPU v4; the untwisted ones have 2 k and 5 k / 2."""
    for shape in ((k, k, 2 * k), (k, 2 * k, 2 * k)):
        graph = twisted_torus(*shape).direct_graph()
        assert (graph.degree, graph.is_simple, graph.is_bidirectional) == (6, True, True)
        assert graph.diameter == diameter < torus(*shape).direct_graph().diameter


@pytest.mark.parametrize("dimension", range(3, 9))
def test_a_twisted_hypercube_crosses_two_links(dimension: int) -> None:
    """All others stay, and the diameter is smaller by one."""
    twisted, plain = twisted_hypercube(dimension), hypercube(dimension)
    assert pairs(plain) - pairs(twisted) == {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert pairs(twisted) - pairs(plain) == {(0, 3), (3, 0), (1, 2), (2, 1)}
    assert twisted.direct_graph().diameter == dimension - 1


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 9, 16, 31, 64])
def test_both_trees_reach_all_nodes_from_the_root_in_few_hops(n: int) -> None:
    """With at most two children, one below the root, no other node inner in both, and links both ways."""
    for parents in double_binary_tree_parents(n):
        assert parents[0] == -1
        assert parents.count(0) == 1
        assert max(parents.count(node) for node in range(n)) <= 2
        for node in range(n):
            hops = 0
            while node:
                node, hops = parents[node], hops + 1  # noqa: PLW2901 - climbs to the root
            assert hops <= n.bit_length()
    first, second = double_binary_tree_parents(n)
    assert set(first) & set(second) <= {-1, 0}
    graph = double_binary_tree(n).direct_graph()
    expected = sorted(
        arc for parents in double_binary_tree_parents(n) for node, parent in enumerate(parents) if node
        for arc in ((node, parent), (parent, node))
    )  # fmt: skip
    assert list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)) == expected
    assert max(graph.degrees[0]) <= 4
    assert graph.is_bidirectional
