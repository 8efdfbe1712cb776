"""Direct-connect families."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import prod

import networkx as nx
import pytest

from collopt.errors import TopologyError
from collopt.topologies import Topology, cartesian_product, complete, hypercube, ring, torus

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


def test_both_ports_of_a_ring_of_two_lead_to_the_same_neighbor() -> None:
    """So the bidirectional one has double links, the other one single links."""
    assert ring(2, bandwidth=3).link("gpu0", "gpu1").bandwidth == 6
    assert ring(2, bandwidth=3, bidirectional=False).link("gpu0", "gpu1").bandwidth == 3


@pytest.mark.parametrize("shape", [(5,), (3, 4), (3, 3, 3), (2, 2), (4, 2, 3)])
def test_tori_have_two_ports_per_dimension(shape: tuple[int, ...]) -> None:
    """A dimension of two has one double link instead."""
    topology = torus(*shape, bandwidth=10)
    assert topology.num_ranks == prod(shape)
    neighbors = sum(1 if size == 2 else 2 for size in shape)
    for node in topology.nodes:
        assert topology.egress(node) == 20 * len(shape)
        assert len(topology.out_links(node)) == neighbors


def test_two_nodes_may_share_one_link() -> None:
    """Along dimensions of size 2, as in a product with the complete graph of two nodes."""
    single = torus(2, 3, single=True)
    assert single.name == "torus-2x3-single"
    assert {len(single.out_links(node)) for node in single.nodes} == {3}
    assert {link.bandwidth for link in single.links} == {1}
    product = cartesian_product(complete(2).graph, ring(3).graph)
    assert single.graph.adjacency[0].tolist() == product.adjacency[0].tolist()
    assert single.graph.adjacency[1].tolist() == product.adjacency[1].tolist()
    assert torus(4, 3, single=True).digest == torus(4, 3).digest


def test_a_torus_is_the_graph_that_networkx_builds() -> None:
    """Same nodes in the same rank order, same neighbors."""
    ours, theirs = torus(3, 4, 3), nx.grid_graph((3, 4, 3), periodic=True)
    names = {place: "gpu" + ".".join(map(str, place[::-1])) for place in theirs}
    edges = {(names[a], names[b]) for a, b in theirs.edges} | {(names[b], names[a]) for a, b in theirs.edges}
    assert {link[:2] for link in ours.links} == edges
    assert ours.compute_nodes[:5] == ("gpu0.0.0", "gpu0.0.1", "gpu0.0.2", "gpu0.1.0", "gpu0.1.1")


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_neighbors_in_a_hypercube_differ_in_one_bit(dimension: int) -> None:
    """And every such pair is linked."""
    topology = hypercube(dimension, bandwidth=2)
    assert len(topology.links) == dimension * 2**dimension
    ranks = topology.node_index
    assert all((ranks[link.tail] ^ ranks[link.head]).bit_count() == 1 for link in topology.links)


def test_a_complete_graph_links_every_pair() -> None:
    """In both directions, with one bandwidth."""
    topology = complete(6, bandwidth=64, latency="0.7")
    assert len(topology.links) == 30
    assert {link[2:] for link in topology.links} == {(Fraction(64), Fraction(7, 10))}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ring(1), "n is 1; expected a whole number from 2"),
        (lambda: ring("4"), "n is '4'"),
        (lambda: ring(2**16 + 1), "from 2 to 65536"),
        (lambda: ring(4, bandwidth=0), "is 0; expected a positive"),
        (lambda: ring(4, latency=-1), "latency of ring-4 is -1"),
        (torus, "the shape of the torus is empty"),
        (lambda: torus(4, 1), "dimension 1 of the torus is 1; expected a whole number from 2"),
        (lambda: torus((4, 4), 2), r"dimension 0 of the torus is \(4, 4\)"),
        (lambda: torus(1000, 1000), "torus 1000x1000 would have 4000000 links"),
        (lambda: torus(2, 3, bandwidth="x"), "bandwidth of torus-2x3"),
        (lambda: hypercube(0), "dimension is 0"),
        (lambda: hypercube(16), "dimension is 16; expected a whole number from 1 to 15"),
        (lambda: complete(1), "n is 1"),
        (lambda: complete(1025), "n is 1025; expected a whole number from 2 to 1024"),
    ],
)
def test_sizes_and_figures_that_make_no_sense_are_refused(call: Callable[[], Topology], message: str) -> None:
    """The argument is named."""
    with pytest.raises(TopologyError, match=message):
        call()
