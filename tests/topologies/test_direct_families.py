"""The rows of Table 9 of the direct-connect paper, and what rings, tori, hypercubes and complete graphs share."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import NamedTuple

import networkx as nx
import pytest

from collopt.topologies import (
    DirectGraph,
    Topology,
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
    ring,
    shifted_ring,
    torus,
    twisted_hypercube,
    twisted_torus,
    unidirectional_ring,
)

SAMPLES = [
    ring(2),
    ring(5),
    ring(5, bidirectional=False),
    torus(3),
    torus(4, 4),
    torus(2, 3, 5),
    hypercube(4),
    complete(7),
]


@pytest.mark.parametrize("topology", SAMPLES, ids=lambda topology: topology.name)
def test_families_are_balanced_connected_and_regular(topology: Topology) -> None:
    """No switches; every node has the same bandwidth in as out."""
    assert topology.switch_nodes == ()
    assert nx.is_strongly_connected(topology.to_networkx())
    assert (
        len({topology.egress(node) for node in topology.nodes} | {topology.ingress(node) for node in topology.nodes})
        == 1
    )


@pytest.mark.parametrize("n", [3, 4, 9])
def test_rings_have_two_neighbors_or_one(n: int) -> None:
    """The next node, and the one before if data may travel both ways."""
    both, forward = ring(n, bandwidth="7/2", latency=2), ring(n, bidirectional=False)
    assert {link.head for link in both.out_links("gpu0")} == {"gpu1", f"gpu{n - 1}"}
    assert [link.head for link in forward.out_links(f"gpu{n - 1}")] == ["gpu0"]
    assert {link[2:] for link in both.links} == {(Fraction(7, 2), Fraction(2))}


@pytest.mark.parametrize("shape", [(5,), (3, 4), (3, 3, 3), (2, 2), (4, 2, 3)])
def test_tori_have_two_ports_per_dimension(shape: tuple[int, ...]) -> None:
    """A dimension of two has one double link instead."""
    topology = torus(*shape, bandwidth=10)
    assert topology.num_ranks == prod(shape)
    neighbors = sum(1 if size == 2 else 2 for size in shape)
    for node in topology.nodes:
        assert topology.egress(node) == 20 * len(shape)
        assert len(topology.out_links(node)) == neighbors


def test_a_torus_is_the_graph_that_networkx_builds() -> None:
    """Same nodes in the same rank order, same neighbors."""
    ours, theirs = torus(3, 4, 3), nx.grid_graph((3, 4, 3), periodic=True)
    names = {place: "gpu" + ".".join(map(str, place[::-1])) for place in theirs}
    edges = {(names[a], names[b]) for a, b in theirs.edges} | {(names[b], names[a]) for a, b in theirs.edges}
    assert {link[:2] for link in ours.links} == edges
    assert ours.compute_nodes[:5] == ("gpu0.0.0", "gpu0.0.1", "gpu0.0.2", "gpu0.1.0", "gpu0.1.1")


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_neighbors_in_a_hypercube_differ_in_one_bit(dimension: int) -> None:
    """Two ranks are linked exactly if they differ in one bit."""
    topology = hypercube(dimension, bandwidth=2)
    assert len(topology.links) == dimension * 2**dimension
    ranks = topology.node_index
    assert all((ranks[link.tail] ^ ranks[link.head]).bit_count() == 1 for link in topology.links)


class Row(NamedTuple):
    """What the table prints; `moore` is None where it says neither yes nor no."""

    topology: Topology
    name: str
    degree: int
    nodes: int
    diameter: int
    moore: bool | None
    loops: bool = False
    parallel: bool = False


TABLE_9 = [
    *(Row(complete(m), f"K({m})", m - 1, m, 1, moore=True) for m in (2, 5, 9)),
    *(Row(complete_bipartite(d), f"K({d}, {d})", d, 2 * d, 2, moore=True) for d in (2, 4, 7)),
    *(
        Row(hamming(n, q), f"H({n}, {q})", n * (q - 1), q**n, n, moore=None)
        for n, q in ((1, 4), (2, 3), (3, 3), (4, 2))
    ),
    *(
        Row(kautz(d, n), f"Kautz({d}, {n})", d, d**n * (d + 1), n + 1, moore=True)
        for d, n in ((2, 0), (2, 3), (3, 2), (4, 1))
    ),
    *(
        Row(generalized_kautz(d, m), f"Π({d}, {m})", d, m, hops, moore=None, loops=m % (d + 1) != 0)
        for d, m, hops in ((2, 3, 1), (2, 9, 3), (4, 64, 3), (4, 80, 3), (3, 10, 3))
    ),
    Row(circulant(16, [3, 4]), "C(16, {3, 4})", 4, 16, 3, moore=False),
    Row(circulant(27, [1, 5, 8]), "C(27, {1, 5, 8})", 6, 27, 3, moore=False),
    *(Row(directed_circulant(d), f"DirCirc({d})", d, d + 2, 2, moore=True) for d in (2, 4, 8)),
    *(
        Row(bidirectional_ring(d, m), f"BiRing({d}, {m})", d, m, m // 2, moore=None, parallel=d > 2)
        for d, m in ((2, 3), (2, 8), (4, 5))
    ),
    *(
        Row(unidirectional_ring(d, m), f"UniRing({d}, {m})", d, m, m - 1, moore=None, parallel=d > 1)
        for d, m in ((1, 2), (1, 6), (3, 4))
    ),
    Row(diamond(), "Diamond", 2, 8, 3, moore=True),
    *(
        Row(de_bruijn(d, n), f"DBJ({d}, {n})", d, d**n, n, moore=True, loops=True)
        for d, n in ((2, 1), (2, 4), (3, 2), (4, 4))
    ),
    Row(modified_de_bruijn(2, 3), "DBJMod(2, 3)", 2, 8, 3, moore=None),
    Row(modified_de_bruijn(2, 4), "DBJMod(2, 4)", 2, 16, 4, moore=None),
    Row(modified_de_bruijn(3, 2), "DBJMod(3, 2)", 3, 9, 2, moore=None),
    Row(modified_de_bruijn(4, 2), "DBJMod(4, 2)", 4, 16, 3, moore=None),
    Row(distance_regular(32), "DistReg(4, 32)", 4, 32, 4, moore=None),
    Row(hypercube(4), "Q(4)", 4, 16, 4, moore=None),
    Row(torus(3, 4), "Torus(3, 4)", 4, 12, 3, moore=None),
    Row(torus(2, 2), "Torus(2, 2)", 4, 4, 2, moore=None, parallel=True),
    Row(twisted_hypercube(4), "TwistedQ(4)", 4, 16, 3, moore=None),
    Row(twisted_torus(4, 8), "TwistedTorus(4, 8)", 4, 32, 4, moore=None),
    Row(shifted_ring(12), "ShiftedRing(12)", 4, 12, 3, moore=None),
    Row(shifted_ring(6), "ShiftedRing(6)", 4, 6, 3, moore=None, parallel=True),
    Row(ring(5), "BiRing(2, 5)", 2, 5, 2, moore=None),
    Row(ring(2), "BiRing(2, 2)", 2, 2, 1, moore=None, parallel=True),
    Row(ring(5, bidirectional=False), "UniRing(1, 5)", 1, 5, 4, moore=None),
]


def graph_of(topology: Topology) -> DirectGraph:
    """The graph that a family attached."""
    assert topology.graph is not None
    return topology.graph


def moore_nodes(degree: int, steps: int) -> int:
    """Most nodes that so many steps can reach, oneself included."""
    return sum(degree**hops for hops in range(steps + 1))


@pytest.mark.parametrize("row", TABLE_9, ids=lambda row: row.name)
def test_families_are_what_the_table_prints(row: Row) -> None:
    """Regular of the printed degree and size, with self-loops and parallel links where it says so."""
    graph = graph_of(row.topology)
    assert (graph.name, graph.num_nodes, graph.degree, graph.diameter) == (
        row.name,
        row.nodes,
        row.degree,
        row.diameter,
    )
    assert (graph.num_self_loops > 0, graph.has_parallel_links) == (row.loops, row.parallel)
    assert graph.num_arcs == row.nodes * row.degree


@pytest.mark.parametrize("row", [row for row in TABLE_9 if row.moore is not None], ids=lambda row: row.name)
def test_moore_optimal_graphs_are_those_that_the_table_marks(row: Row) -> None:
    """Definition 10: one step fewer cannot reach all nodes.  The diameter is the least number of steps."""
    assert (row.nodes > moore_nodes(row.degree, row.diameter - 1)) == row.moore


@pytest.mark.parametrize("degree", [2, 3, 4, 8])
def test_generalized_kautz_graphs_are_at_most_one_step_from_the_moore_bound(degree: int) -> None:
    """Theorem 21, for sizes near the places where the bound jumps, and some between."""
    for nodes in {degree + 1, degree + 2, 2 * degree + 1, degree**2, degree**2 + degree, degree**3 + 1, 100, 257}:
        graph = graph_of(generalized_kautz(degree, nodes))
        assert nodes > moore_nodes(degree, graph.diameter - 2)
        assert (graph.num_self_loops > 0) == (nodes % (degree + 1) != 0)
