"""Minimum arborescences against networkx, which grows them in another way."""

from __future__ import annotations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from collopt.solvers.trees.routed_graph import Arc, cheapest_arborescence
from sample_sizes import examples


@given(st.integers(2, 7), st.data())
@settings(max_examples=examples(150))
def test_costs_are_those_of_networkx(size: int, data: st.DataObject) -> None:
    """Whatever the arcs; those into the root and parallel ones among them."""
    nodes = st.integers(0, size - 1)
    arcs = data.draw(st.lists(st.builds(Arc, nodes, nodes, st.integers(0, 9)), max_size=25))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(size))
    for tail, head, cost in sorted(arcs, key=lambda arc: -arc.cost):
        if head not in (0, tail):
            graph.add_edge(tail, head, weight=cost)
    chosen = cheapest_arborescence(size, 0, arcs)
    try:
        expected = nx.minimum_spanning_arborescence(graph)
    except nx.NetworkXException:
        assert chosen is None
        return
    assert chosen is not None
    found = nx.DiGraph([arcs[place][:2] for place in chosen])
    assert sorted(found) == list(range(size))
    assert nx.is_arborescence(found)
    assert found.in_degree(0) == 0
    assert sum(arcs[place].cost for place in chosen) == expected.size(weight="weight")
