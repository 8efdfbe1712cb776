"""Circulant and metacirculant graphs, rings with parallel links, and the search for offsets."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from math import ceil, gcd, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.planners.direct_connect.costs import low_hop_metacirculants
from collopt.solvers.steps.graph_costs import hop_sums
from collopt.topologies import (
    Topology,
    bidirectional_ring,
    circulant,
    circulant_digraph,
    directed_circulant,
    low_diameter_offsets,
    metacirculant_digraph,
    shifted_ring,
    unidirectional_ring,
)
from collopt.topologies.direct_connect.circulants import (
    Group,
    bidirectional_offset_sets,
    circulant_diameter,
    digraph_offset_sets,
    least_circulant_diameter,
    sampled_offset_sets,
)
from sample_sizes import examples


def heads(topology: Topology, node: int) -> list[int]:
    """Where the arcs of a node lead, in order."""
    graph = topology.direct_graph()
    return graph.heads[graph.tails == node].tolist()


@pytest.mark.parametrize(("n", "offsets"), [(5, [1]), (7, [2, 3]), (16, [4, 3]), (15, (1, 4, 5)), (12, [3, 4])])
def test_neighbors_in_a_circulant_are_the_offsets_away(n: int, offsets: list[int]) -> None:
    """Both ways round, at every node, in any order of the offsets."""
    topology = circulant(n, offsets)
    for node in range(n):
        assert heads(topology, node) == sorted((node + sign * step) % n for step in offsets for sign in (1, -1))
    assert topology.name == f"C({n}, {{{', '.join(map(str, sorted(offsets)))}}})"


@pytest.mark.parametrize("degree", [1, 2, 4, 9])
def test_a_directed_circulant_reaches_all_but_the_node_before(degree: int) -> None:
    """That one is two hops away."""
    topology = directed_circulant(degree)
    assert topology.num_ranks == degree + 2
    for node in range(degree + 2):
        assert sorted({*range(degree + 2)} - {*heads(topology, node)}) == sorted([node, (node - 1) % (degree + 2)])


@pytest.mark.parametrize(("n", "offsets"), [(2, [1]), (7, [4, 1, 2]), (8, (1, 4, 7)), (6, [2, 3]), (9, range(1, 8))])
def test_heads_in_a_circulant_digraph_are_the_offsets_away(n: int, offsets: Sequence[int]) -> None:
    """One way round, at every node, in any order of the offsets."""
    topology = circulant_digraph(n, offsets, bandwidth=3)
    for node in range(n):
        assert heads(topology, node) == sorted((node + step) % n for step in offsets)
    assert topology.name == f"DirCirc({n}, {{{', '.join(map(str, sorted(offsets)))}}})"
    assert {link.bandwidth for link in topology.links} == {3}


def test_other_circulants_are_special_circulant_digraphs() -> None:
    """Those with both ways round, all but one offset, or a single one."""
    assert circulant_digraph(16, [3, 4, 12, 13]).digest == circulant(16, [3, 4]).digest
    assert circulant_digraph(6, [1, 2, 3, 4]).digest == directed_circulant(4).digest
    assert circulant_digraph(5, [1]).digest == unidirectional_ring(1, 5).digest


def test_parallel_links_of_rings_add_up() -> None:
    """A link has the bandwidth of all its parallel arcs."""
    assert unidirectional_ring(3, 4, bandwidth=2).link("gpu3", "gpu0").bandwidth == 6
    assert len(unidirectional_ring(3, 4).links) == 4
    assert bidirectional_ring(6, 4, bandwidth="1/3").link("gpu0", "gpu3").bandwidth == Fraction(1)
    assert heads(bidirectional_ring(4, 4), 0) == [1, 1, 3, 3]


@pytest.mark.parametrize("n", range(3, 40))
def test_both_rings_of_a_shifted_ring_pass_through_all_nodes(n: int) -> None:
    """The second one with the largest stride that can, short of half way round."""
    topology = shifted_ring(n)
    stride = max(step for step in range(1, (n + 1) // 2) if gcd(step, n) == 1)
    assert heads(topology, 0) == sorted([1, n - 1, stride, n - stride])
    assert shifted_ring(n, stride=stride).digest == shifted_ring(n, stride=n - stride).digest == topology.digest


def test_distances_of_the_shifted_ring_are_those_behind_the_printed_throughput() -> None:
    """Caption of Table 4: 10738 µs for 1 MB per node over 4 links of 25 Gb/s; 83.886 µs is 1 MB at 100 Gb/s."""
    hops = int(shifted_ring(1024).direct_graph().distances[0].sum())
    assert round(hops / 1024 * 83.88608) == 10738


def least_by_enumeration(n: int, degree: int) -> int:
    """Least diameter of all connected circulant graphs."""
    sets = combinations(range(1, (n + 1) // 2), degree // 2)
    return min(hops for each in sets if gcd(n, *each) == 1 if (hops := circulant_diameter(n, each, n)) is not None)


@settings(max_examples=examples(60))
@given(st.data())
def test_the_diameter_is_that_of_a_breadth_first_search(data: st.DataObject) -> None:
    """The bits of one integer say the same as the distances between all nodes."""
    n = data.draw(st.integers(5, 60))
    offsets = data.draw(st.sets(st.integers(1, (n - 1) // 2), min_size=1, max_size=4))
    if gcd(n, *offsets) > 1:
        assert circulant_diameter(n, sorted(offsets), n) is None
        return
    diameter = circulant(n, sorted(offsets)).direct_graph().diameter
    assert circulant_diameter(n, sorted(offsets), n) == diameter
    assert circulant_diameter(n, sorted(offsets), diameter + 1) == diameter
    assert circulant_diameter(n, sorted(offsets), diameter) is None


@pytest.mark.parametrize("n", [5, 6, 7, 8, 12, 13, 14, 25, 26, 40, 41])
def test_degree_4_has_the_least_diameter_of_all_pairs(n: int) -> None:
    """Theorem 22 against enumeration; 13, 25 and 41 are the most nodes of their diameters."""
    hops = circulant_diameter(n, low_diameter_offsets(n, 4), n)
    assert hops == least_by_enumeration(n, 4)


@pytest.mark.parametrize("n", [7, 100, 1023, 1024, 1025, 65536])
def test_degree_4_follows_the_printed_formula(n: int) -> None:
    """m = ceil((-1 + sqrt(2 n - 1)) / 2), which is the bound from counting points, and reached."""
    m = ceil((-1 + sqrt(2 * n - 1)) / 2)
    assert low_diameter_offsets(n, 4) == (m, m + 1)
    assert least_circulant_diameter(n, 4) == m == circulant_diameter(n, (m, m + 1), n)


@pytest.mark.parametrize("degree", [6, 8])
@pytest.mark.parametrize("n", [9, 14, 20, 27])
def test_looking_at_all_sets_finds_the_least_diameter_where_one_offset_is_1(n: int, degree: int) -> None:
    """On these sizes a set without an offset prime to n is never better."""
    hops = circulant_diameter(n, low_diameter_offsets(n, degree, tries=10_000), n)
    assert hops == least_by_enumeration(n, degree)


@settings(max_examples=examples(60))
@given(st.integers(2, 6).map(lambda half: 2 * half), st.integers(13, 1500))
def test_offsets_are_usable_and_no_better_than_the_bound(degree: int, n: int) -> None:
    """Different, in order, below n / 2, and the graph they make is connected."""
    offsets = low_diameter_offsets(n, degree, tries=20)
    assert len(offsets) == degree // 2
    assert list(offsets) == sorted({*offsets})
    assert 1 <= offsets[0] <= offsets[-1] < n / 2
    hops = circulant_diameter(n, offsets, n)
    assert hops is not None
    assert hops >= least_circulant_diameter(n, degree)


@settings(max_examples=examples(80))
@given(st.data())
def test_rows_are_different_offsets(data: st.DataObject) -> None:
    """From 1 to n - 1, and with opposite ones where links are to go both ways."""
    n = data.draw(st.integers(3, 300))
    degree = data.draw(st.integers(2, min(n - 1, 9)))
    most = data.draw(st.integers(1, 500))
    for rows in (digraph_offset_sets(n, degree, most), bidirectional_offset_sets(n, degree, most)):
        assert rows.shape[1] == degree
        assert len(rows) <= most + n
        for row in rows.tolist():
            assert len({*row}) == degree
            assert 1 <= min(row) <= max(row) < n
    for row in bidirectional_offset_sets(n, degree, most).tolist():
        assert {n - offset for offset in row} == {*row}


def test_two_way_sets_of_odd_size_need_an_even_number_of_nodes() -> None:
    """An odd set holds the link to the opposite node."""
    assert len(bidirectional_offset_sets(9, 3, 100)) == 0
    assert {tuple(sorted(row)) for row in bidirectional_offset_sets(8, 3, 100).tolist()} == {
        (1, 4, 7),
        (2, 4, 6),
        (3, 4, 5),
    }


@pytest.mark.parametrize(("n", "degree", "subgroup"), [(13, 3, [1, 3, 9]), (31, 5, [1, 2, 4, 8, 16]), (1009, 7, None)])
def test_subgroups_of_the_units_come_first(n: int, degree: int, subgroup: list[int] | None) -> None:
    """A multiplication by any offset maps such a set to itself."""
    first = digraph_offset_sets(n, degree, 1)[0].tolist()
    assert subgroup is None or sorted(first) == subgroup
    assert all({one * other % n for other in first} == {*first} for one in first)


def test_the_sample_is_one_sequence() -> None:
    """Wherever it starts, without repeated offsets, and not only a few sets over and over."""
    whole = sampled_offset_sets(1000, 4, range(300))
    assert np.array_equal(whole[100:], sampled_offset_sets(1000, 4, range(100, 300)))
    assert (np.diff(whole, axis=1) > 0).all()
    assert len(np.unique(whole, axis=0)) == 300
    assert sampled_offset_sets(4, 4, range(2)).tolist() == [[1, 2, 3, 4]] * 2


GROUPS = [(3, 2, 2), (8, 2, 7), (5, 4, 2), (4, 4, 3), (6, 3, 1), (7, 6, 3)]


def permutations(m: int, k: int, r: int) -> list[tuple[int, ...]]:
    """The element a k + b as a permutation: of the points (i, j) it takes i to a + r^b i, and j to j + b."""
    points = [(i, j) for i in range(m) for j in range(k)]
    return [tuple((a + r**b * i) % m * k + (j + b) % k for i, j in points) for a in range(m) for b in range(k)]


@pytest.mark.parametrize("group", GROUPS)
def test_arcs_are_products_of_permutations(group: tuple[int, int, int]) -> None:
    """From each element to its product by another one."""
    made = permutations(*group)
    number = {each: place for place, each in enumerate(made)}
    for other in range(1, len(made)):
        tails, heads, _ = Group(*group).graph([other]).adjacency
        assert tails.tolist() == list(range(len(made)))
        assert heads.tolist() == [number[tuple(one[point] for point in made[other])] for one in made]


@pytest.mark.parametrize("two_way", [False, True])
@pytest.mark.parametrize(("nodes", "degree"), [(6, 2), (12, 3), (16, 4), (20, 4), (21, 6)])
def test_the_search_lists_vertex_transitive_digraphs_by_distance(nodes: int, degree: int, two_way: bool) -> None:
    """With a sum of distances that is that of the graph, and an opposite of each link if asked for."""
    found = low_hop_metacirculants(nodes, degree, two_way=two_way)
    sums = []
    for base, graph in found:
        m, k, r, elements = base.arguments
        assert metacirculant_digraph(m, k, r, elements).name == base.name == graph.name
        assert (graph.num_nodes, graph.degree, graph.is_simple) == (nodes, degree, True)
        assert graph.is_bidirectional or not two_way
        row = graph.distances.sum(axis=1)
        assert (row == row[0]).all()
        assert hop_sums(m, Group(m, k, r).powers, np.array([elements])).tolist() == [row[0]]
        sums.append(int(row[0]))
    assert sums == sorted(sums)
    assert sums or two_way
