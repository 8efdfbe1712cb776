"""Circulant graphs and rings with parallel links."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import gcd

import pytest

from collopt.errors import TopologyError
from collopt.topologies import (
    Topology,
    bidirectional_ring,
    circulant,
    circulant_digraph,
    directed_circulant,
    low_diameter_circulant,
    low_diameter_offsets,
    ring,
    shifted_ring,
    unidirectional_ring,
)


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


def test_a_low_diameter_circulant_has_the_offsets_that_the_search_finds() -> None:
    """So `tries` reaches it."""
    for n, degree, tries in ((50, 2, 1), (50, 4, 1), (50, 6, 1), (50, 6, 400)):
        expected = circulant(n, low_diameter_offsets(n, degree, tries=tries))
        assert low_diameter_circulant(n, degree, tries=tries) == expected


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
    """To the bandwidth of all of them."""
    assert unidirectional_ring(3, 4, bandwidth=2).link("gpu3", "gpu0").bandwidth == 6
    assert len(unidirectional_ring(3, 4).links) == 4
    assert bidirectional_ring(6, 4, bandwidth="1/3").link("gpu0", "gpu3").bandwidth == Fraction(1)
    assert heads(bidirectional_ring(4, 4), 0) == [1, 1, 3, 3]


@pytest.mark.parametrize("n", [3, 4, 9])
def test_rings_of_degree_1_and_2_are_the_plain_rings(n: int) -> None:
    """The same networks and the same graphs, under other names."""
    for ours, plain in (
        (bidirectional_ring(2, n), ring(n)),
        (unidirectional_ring(1, n), ring(n, bidirectional=False)),
    ):
        assert ours.digest == plain.digest
        assert ours.graph is not None
        assert plain.graph is not None
        assert ours.graph.name == plain.graph.name
        assert heads(ours, 0) == heads(plain, 0)


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: circulant(2, [1]), "n is 2; expected a whole number from 3"),
        (lambda: circulant(9, []), "there are no offsets"),
        (lambda: circulant(9, 4), "the offsets are 4; expected a list"),
        (
            lambda: circulant(9, [0]),
            "an offset of the circulant graph of 9 nodes is 0; expected a whole number from 1 to 4",
        ),
        (lambda: circulant(9, [5]), "is 5; expected a whole number from 1 to 4"),
        (lambda: circulant(9, [-1]), "is -1; expected"),
        (lambda: circulant(9, [1, 2.0]), "is 2.0; expected"),
        (lambda: circulant(9, [True]), "is True; expected"),
        (lambda: circulant(9, "12"), "is '1'; expected"),
        (lambda: circulant(9, [1, 10**30]), "is 1000000000000000000000000000000; expected"),
        (lambda: circulant(8, [1, 4]), "offset 4 is half of n = 8, one link where other offsets have two"),
        (lambda: circulant(8, [1, 1]), "offset 1 is given twice"),
        (lambda: circulant(8, [2]), r"the offsets \[2\] and n = 8 have the common divisor 2"),
        (lambda: circulant(15, [3, 6]), "the common divisor 3, so the graph would not be connected"),
        (lambda: circulant(2**16, range(1, 100)), "would have 12976128 links"),
        (lambda: circulant_digraph(1, [1]), "n is 1; expected a whole number from 2"),
        (lambda: circulant_digraph(9, []), "there are no offsets"),
        (lambda: circulant_digraph(9, [9]), "an offset of the circulant digraph of 9 nodes is 9; expected .* 1 to 8"),
        (lambda: circulant_digraph(8, [2, 4, 6]), r"the offsets \[2, 4, 6\] and n = 8 have the common divisor 2"),
        (lambda: circulant_digraph(2**16, range(1, 100)), "would have 6488064 links"),
        (lambda: low_diameter_circulant(20, 5), "degree is 5; expected an even number"),
        (lambda: low_diameter_circulant(6, 6), "n is 6; expected at least 7 nodes"),
        (lambda: directed_circulant(0), "degree is 0"),
        (lambda: directed_circulant(10**6), "degree is 1000000; expected a whole number from 1 to 1022"),
        (lambda: unidirectional_ring(0, 3), "degree is 0"),
        (lambda: unidirectional_ring(1, 1), "n is 1; expected a whole number from 2"),
        (lambda: unidirectional_ring(60000, 60000), "would have 3600000000 links"),
        (lambda: bidirectional_ring(3, 5), "degree is 3; expected an even number"),
        (lambda: bidirectional_ring(2, 2), "n is 2; expected a whole number from 3"),
        (lambda: shifted_ring(2), "n is 2"),
        (lambda: shifted_ring(9, stride=3), "stride is 3; expected no divisor in common with n = 9"),
        (lambda: shifted_ring(9, stride=9), "stride is 9; expected a whole number from 1 to 8"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], Topology], message: str) -> None:
    """In one line that says what was expected."""
    with pytest.raises(TopologyError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
