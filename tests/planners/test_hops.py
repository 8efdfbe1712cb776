"""How ranks reach each other past switches, and which of them form a box."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings

from collopt.planners.literature.routes import Hops, find_boxes
from collopt.planners.trees.problem import tree_problem
from collopt.topologies import Topology, build, dgx1_v100, dgx_a100, mi250, mi300x, torus
from sample_sizes import examples
from strategies import eulerian_topologies


def hops_of(topology: Topology) -> Hops:
    """In the direction of the links."""
    return Hops(tree_problem(topology, "broadcast", ()))


@settings(max_examples=examples(60))
@given(eulerian_topologies(max_ranks=5, max_switches=6))
def test_routes_to_one_rank_are_those_among_routes_to_all(topology: Topology) -> None:
    """In the same order, also to and from switches; ways to all are searched once distances are asked for."""
    alone, together = hops_of(topology), hops_of(topology)
    nodes = range(len(topology.nodes))
    for tail in nodes:
        together.distances(tail)
        for head in nodes:
            assert alone.routes(tail, head) == together.routes(tail, head)


@settings(max_examples=examples(60))
@given(eulerian_topologies(max_ranks=5, max_switches=4))
def test_routes_are_the_widest_of_the_shortest_ways(topology: Topology) -> None:
    """Against networkx, which lists all shortest ways through switches for every pair."""
    hops, graph = hops_of(topology), nx.DiGraph()
    graph.add_nodes_from(topology.nodes)
    graph.add_weighted_edges_from((link.tail, link.head, link.bandwidth) for link in topology.links)
    for tail, sender in enumerate(topology.compute_nodes):
        for head, receiver in enumerate(topology.compute_nodes):
            others = set(topology.compute_nodes) - {sender, receiver}
            through = graph.subgraph(set(graph) - others)
            expected: set[tuple[str, ...]] = set()
            if tail != head and nx.has_path(through, sender, receiver):
                ways = list(nx.all_shortest_paths(through, sender, receiver))
                widths = [min(graph.edges[hop]["weight"] for hop in pairwise(way)) for way in ways]
                expected = {tuple(way) for way, width in zip(ways, widths, strict=True) if width == max(widths)}
            routes = hops.routes(tail, head)
            assert {tuple(topology.nodes[node] for node in route.nodes) for route in routes} == expected
            for route in routes:
                links = [topology.links[link] for link in route.links]
                assert [(link.tail, link.head) for link in links] == [
                    (topology.nodes[one], topology.nodes[other]) for one, other in pairwise(route.nodes)
                ]


@pytest.mark.parametrize(
    ("topology", "sizes"),
    [
        (dgx_a100(), [8]),
        (dgx_a100(boxes=3), [8, 8, 8]),
        (dgx1_v100(boxes=2), [8, 8]),
        (mi250(boxes=2), [16, 16]),
        (mi250(boxes=2).restrict([*range(8), *range(16, 24)]), [8, 8]),
        (mi300x(boxes=2).without_node("box1/gpu3"), [8, 7]),
        (build("leaf-spine", leaves=3, spines=2, hosts_per_leaf=4), [4, 4, 4]),
        (build("rail", boxes=2, oversubscription=None), [8, 8]),
        (build("fat-tree", k=4), [2] * 8),
        (torus(3, 3), [9]),
    ],
    ids=lambda entry: entry.name if isinstance(entry, Topology) else "",
)
def test_boxes_are_found_without_their_names(topology: Topology, sizes: list[int]) -> None:
    """GPUs on one switch or in one mesh; renaming and reordering the ranks does not change who is with whom."""
    boxes = find_boxes(hops_of(topology))
    assert [len(box) for box in boxes] == sizes
    assert sorted(rank for box in boxes for rank in box) == list(range(topology.num_ranks))
    order = np.random.default_rng(0).permutation(topology.num_ranks).tolist()
    shuffled = find_boxes(hops_of(topology.restrict(order)))
    assert {frozenset(order[rank] for rank in box) for box in shuffled} == {frozenset(box) for box in boxes}
