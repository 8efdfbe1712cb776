"""Double binary trees."""

from __future__ import annotations

import pytest

from collopt.errors import TopologyError
from collopt.topologies import double_binary_tree
from collopt.topologies.direct_connect.basic_graphs import double_binary_tree_parents

SIZES = [2, 3, 4, 5, 6, 9, 16, 31, 64]


@pytest.mark.parametrize("n", SIZES)
def test_both_trees_reach_all_nodes_from_the_root_in_few_hops(n: int) -> None:
    """With at most two children, and one below the root."""
    for parents in double_binary_tree_parents(n):
        assert parents[0] == -1
        assert parents.count(0) == 1
        assert max(parents.count(node) for node in range(n)) <= 2
        for node in range(n):
            hops = 0
            while node:
                node, hops = parents[node], hops + 1  # noqa: PLW2901 - climbs to the root
            assert hops <= n.bit_length()


@pytest.mark.parametrize("n", SIZES)
def test_no_node_but_the_root_is_inner_in_both_trees(n: int) -> None:
    """So every node passes on what it receives in one tree only."""
    first, second = double_binary_tree_parents(n)
    assert set(first) & set(second) <= {-1, 0}


@pytest.mark.parametrize("n", SIZES)
def test_the_graph_has_the_links_of_both_trees(n: int) -> None:
    """Each both ways, and twice if both trees have it; no node has more than four."""
    graph = double_binary_tree(n).direct_graph()
    expected = sorted(
        arc for parents in double_binary_tree_parents(n) for node, parent in enumerate(parents) if node
        for arc in ((node, parent), (parent, node))
    )  # fmt: skip
    assert list(zip(graph.tails.tolist(), graph.heads.tolist(), strict=True)) == expected
    assert max(graph.degrees[0]) <= 4
    assert graph.is_bidirectional


@pytest.mark.parametrize("n", [1, True, 3.0, "4", 10**6])
def test_other_sizes_are_refused(n: object) -> None:
    """A tree needs two nodes."""
    with pytest.raises(TopologyError, match=r"n is .*; expected a whole number from 2"):
        double_binary_tree(n)  # type: ignore[arg-type]
