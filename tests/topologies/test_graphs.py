"""Topologies from networkx graphs and back, and direct graphs from arrays."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

from collopt.errors import TopologyError, UnsupportedError
from collopt.support.validation import as_integers
from collopt.topologies import (
    DirectGraph,
    Link,
    Topology,
    dgx_h100,
)
from collopt.topologies.symmetry.isomorphism import as_permutation
from sample_sizes import examples
from strategies import eulerian_topologies, switch_free_topologies


def edge(**attributes: Any) -> nx.Graph:
    """Two nodes and one undirected edge."""
    graph = nx.Graph()
    graph.add_edge("a", "b", **attributes)
    return graph


def test_an_undirected_edge_counts_in_both_directions() -> None:
    """Each direction has the whole bandwidth."""
    topology = Topology.from_networkx(edge(bandwidth=12.5, latency="0.7"))
    expected = (Fraction(25, 2), Fraction(7, 10))
    assert topology.links == (Link("a", "b", *expected), Link("b", "a", *expected))


@pytest.mark.parametrize("kind", [nx.MultiGraph, nx.MultiDiGraph])
def test_parallel_edges_merge(kind: type[nx.Graph]) -> None:
    """Bandwidths add, the larger latency stays."""
    graph = kind()
    graph.add_edge("a", "b", bandwidth=1, latency=5)
    graph.add_edge("a", "b", bandwidth=2, latency=3)
    assert Topology.from_networkx(graph).link("a", "b") == Link("a", "b", Fraction(3), Fraction(5))


def test_attributes_may_have_other_names() -> None:
    """Graphs of other tools name their attributes by options."""
    graph = nx.DiGraph()
    graph.add_node("s", role="switch")
    graph.add_node("a", role="compute")
    graph.add_node("b", role="compute")
    nx.add_cycle(graph, ["a", "s", "b"], capacity=4, delay=1)
    topology = Topology.from_networkx(graph, bandwidth="capacity", latency="delay", kind="role", name="mine")
    assert topology.compute_nodes == ("a", "b")
    assert topology.switch_nodes == ("s",)
    assert topology.link("a", "s") == Link("a", "s", Fraction(4), Fraction(1))
    assert topology.name == "mine"
    assert topology == Topology.from_networkx(graph, bandwidth="capacity", latency="delay", kind="role")


def test_nodes_of_any_kind_are_named_by_their_text() -> None:
    """Places of a grid and numpy integers become names."""
    graph = nx.grid_2d_graph(2, 2)
    graph.add_node(np.int64(7))
    nx.set_edge_attributes(graph, 1, "bandwidth")
    assert Topology.from_networkx(graph).compute_nodes == ("(0, 0)", "(0, 1)", "(1, 0)", "(1, 1)", "7")


def with_node(**attributes: Any) -> nx.Graph:
    """Two ranks and a third node of the given attributes."""
    graph = edge(bandwidth=1)
    graph.add_nodes_from("ab", kind="compute")
    graph.add_node("c", **attributes)
    return graph


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({"a": ["b"]}, "the graph is a dict; expected a networkx graph"),
        (edge(), r"edge \('a', 'b'\) has no attribute 'bandwidth'"),
        (with_node(kind="nic"), "attribute 'kind' of node 'c' is 'nic'; expected 'compute' or 'switch'"),
        (
            with_node(kind="switch", multicast="yes"),
            "attribute 'multicast' of node 'c' is 'yes'; expected True or False",
        ),
        (with_node(), "attribute 'kind' of node 'c' is missing, while others have it"),
        (nx.Graph([("a", "a", {"bandwidth": 1}), ("a", "b", {"bandwidth": 1})]), "self-loop"),
    ],
)
def test_graphs_that_make_no_sense_are_refused(graph: Any, message: str) -> None:
    """The node or edge, its value and what was expected are named."""
    with pytest.raises(TopologyError, match=message):
        Topology.from_networkx(graph)


def test_to_networkx_writes_kinds_abilities_and_exact_numbers() -> None:
    """In the attributes that from_networkx reads by default."""
    graph = dgx_h100(2).to_networkx()
    assert list(graph)[:16] == [f"box{box}/gpu{gpu}" for box in range(2) for gpu in range(8)]
    assert graph.nodes["box0/gpu0"] == {"kind": "compute"}
    limits = dgx_h100(2).limits[1].stated
    assert graph.nodes["box1/nvswitch"] == {"kind": "switch", "multicast": True, "aggregation": True} | limits
    assert graph.nodes["ib"] == {"kind": "switch"}
    assert graph.edges["box0/nic0", "ib"] == {"bandwidth": Fraction(50), "latency": Fraction(1, 2)}


@settings(max_examples=examples(60))
@given(eulerian_topologies() | switch_free_topologies())
def test_a_round_trip_gives_the_same_network(topology: Topology) -> None:
    """Only the order in which links are listed may change."""
    back = Topology.from_networkx(topology.to_networkx())
    assert back.digest == topology.digest
    assert back.nodes == topology.nodes
    assert set(back.links) == set(topology.links)
    assert back.name == topology.name


RING_ARCS = [(0, 1), (1, 2), (2, 0)]


def test_whole_numbers_of_any_kind_make_a_graph() -> None:
    """Lists, and arrays of other integers, sorted and made int64."""
    graph = DirectGraph.from_arcs(np.int32(3), np.array([(2, 0), (0, 1), (1, 2)], dtype=np.uint8), "")  # type: ignore[arg-type]
    assert type(graph.num_nodes) is int
    assert graph.tails.dtype == graph.heads.dtype == np.int64
    assert list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)) == RING_ARCS
    assert [link[:2] for link in Topology.from_graph(graph, names=["x", "y", "z"]).links] == [
        ("x", "y"),
        ("y", "z"),
        ("z", "x"),
    ]
    assert as_integers([np.int8(1), 2], "x", "y").tolist() == [1, 2]


@pytest.mark.parametrize(
    "mapping", [None, "abc", [0, 1], [0, 1, 2, 3], [0, 1, 1], [0.0, 1.0, 2.0], [False, True, 2], [[0, 1, 2]]]
)
def test_permutations_have_every_number_once(mapping: Any) -> None:
    """Other lists are no mappings of nodes."""
    with pytest.raises(UnsupportedError, match=r"the mapping is .*; expected each number from 0 to 2 once"):
        as_permutation(mapping, 3)
