"""Small regular graphs, named and random: ``from regular_graphs import BASES, regular_graphs``."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from collopt.errors import BoundError
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
    generalized_kautz,
    hamming,
    hypercube,
    kautz,
    modified_de_bruijn,
    torus,
    unidirectional_ring,
)

__all__ = ["BASES", "regular_graphs", "renumbered", "single_arc_graphs"]

_FAMILIES: list[Topology] = [
    complete(2),
    complete(3),
    complete(6),
    complete_bipartite(2),
    complete_bipartite(3),
    unidirectional_ring(1, 4),
    unidirectional_ring(2, 3),
    unidirectional_ring(3, 2),
    bidirectional_ring(2, 5),
    bidirectional_ring(4, 4),
    diamond(),
    de_bruijn(2, 3),
    modified_de_bruijn(2, 3),
    modified_de_bruijn(2, 4),
    modified_de_bruijn(3, 2),
    modified_de_bruijn(4, 2),
    kautz(2, 1),
    generalized_kautz(2, 7),
    generalized_kautz(3, 10),
    circulant(7, (2, 3)),
    circulant(12, (2, 3)),
    directed_circulant(3),
    hamming(2, 3),
    hypercube(3),
    torus(3, 4),
]
BASES = [topology.direct_graph() for topology in _FAMILIES]


@st.composite
def regular_graphs(draw: st.DrawFn, max_nodes: int = 8, max_degree: int = 3, min_degree: int = 1) -> DirectGraph:
    """Strongly connected regular graphs, many with parallel arcs and self-loops.

    They consist of one cycle through all nodes, and for each further port of a permutation.
    """
    nodes = draw(st.integers(2, max_nodes))
    order = draw(st.permutations(range(nodes)))
    arcs = list(zip(order, order[1:] + order[:1], strict=True))
    for _ in range(draw(st.integers(min_degree, max_degree)) - 1):
        arcs += enumerate(draw(st.permutations(range(nodes))))
    return DirectGraph.from_arcs(nodes, arcs, "random")


@st.composite
def single_arc_graphs(draw: st.DrawFn, max_nodes: int = 5) -> DirectGraph:
    """Strongly connected regular graphs of degree 2 or more, without parallel arcs, with or without self-loops."""
    nodes = draw(st.integers(3, max_nodes))
    steps = {1, draw(st.sampled_from([step for step in range(nodes) if step != 1]))}
    steps |= set(draw(st.lists(st.integers(0, nodes - 1), max_size=1)))
    order = draw(st.permutations(range(nodes)))
    graphs = [
        DirectGraph.from_arcs(
            nodes, [(node, heads[(node + step) % nodes]) for node in range(nodes) for step in sorted(steps)], "random"
        )
        for heads in (order, range(nodes))
    ]
    # The second is a circulant, and so connected whatever is drawn.
    return graphs[0] if _is_connected(graphs[0]) else graphs[1]


def renumbered(graph: DirectGraph, seed: int) -> DirectGraph:
    """The same graph with its nodes in another order."""
    order = list(range(graph.num_nodes))
    random.Random(seed).shuffle(order)
    arcs = [(order[tail], order[head]) for tail, head in zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)]
    return DirectGraph.from_arcs(graph.num_nodes, arcs, f"{graph.name} renumbered")


def _is_connected(graph: DirectGraph) -> bool:
    try:
        return graph.diameter > 0
    except BoundError:
        return False
