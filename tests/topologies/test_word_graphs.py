"""Kautz, de Bruijn and modified de Bruijn graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise, product

import networkx as nx
import pytest

from collopt.errors import TopologyError
from collopt.topologies import Topology, de_bruijn, generalized_kautz, kautz, modified_de_bruijn
from collopt.topologies.direct_connect.kautz import REWIRED_CYCLES


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


@pytest.mark.parametrize(("degree", "length"), [(2, 0), (2, 2), (3, 1), (4, 1)])
def test_the_next_kautz_graph_is_the_line_graph(degree: int, length: int) -> None:
    """K(d, n + 1) = L(K(d, n)), numbered by the arcs in their order."""
    arcs = arcs_of(kautz(degree, length))
    line = [(i, j) for i, (_, middle) in enumerate(arcs) for j, (tail, _) in enumerate(arcs) if middle == tail]
    assert arcs_of(kautz(degree, length + 1)) == line


def test_generalized_kautz_graphs_of_few_nodes_are_written_out() -> None:
    """Definition 16 for d = 2, m = 5: x leads to -2 x - 1 and -2 x - 2."""
    assert arcs_of(generalized_kautz(2, 5)) == [
        (0, 3), (0, 4), (1, 1), (1, 2), (2, 0), (2, 4), (3, 2), (3, 3), (4, 0), (4, 1),
    ]  # fmt: skip


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kautz(0, 1), "degree is 0; expected a whole number from 1"),
        (lambda: kautz(True, 1), "degree is True"),
        (lambda: kautz(2, -1), "length is -1; expected a whole number from 0"),
        (lambda: kautz(2.0, 1), "degree is 2.0"),
        (lambda: kautz(2, 10**9), "length is 1000000000"),
        (
            lambda: kautz(4, 9),
            r"the number of nodes of Kautz\(4, 9\) is 1310720; expected a whole number from 2 to 65536",
        ),
        (lambda: kautz(1023, 1), r"number of nodes of Kautz\(1023, 1\) is 1047552"),
        (lambda: generalized_kautz(1, 5), "degree is 1; expected a whole number from 2"),
        (lambda: generalized_kautz(4, 4), "n is 4; expected a whole number from 5"),
        (lambda: generalized_kautz(4, "9"), "n is '9'"),
        (lambda: generalized_kautz(1023, 60000), r"Π\(1023, 60000\) would have 61380000 links"),
        (lambda: de_bruijn(1, 3), "degree is 1; expected a whole number from 2"),
        (lambda: de_bruijn(2, 0), "length is 0; expected a whole number from 1"),
        (lambda: de_bruijn(4, 9), r"the number of nodes of DBJ\(4, 9\) is 262144"),
        (lambda: modified_de_bruijn(3, 3), r"of \(degree, length\) \(3, 3\); expected one of \(2, 3\), \(2, 4\)"),
        (lambda: modified_de_bruijn(2, None), "length is None"),
        (lambda: kautz(2, 1, bandwidth=0), r"bandwidth of Kautz\(2, 1\) is 0; expected a positive number"),
        (lambda: de_bruijn(2, 1, latency=-1), r"latency of DBJ\(2, 1\) is -1"),
    ],
)
def test_wrong_arguments_are_refused(call: Callable[[], Topology], message: str) -> None:
    """By name, before anything is built."""
    with pytest.raises(TopologyError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
