"""Double binary tree: two binary trees over the same compute nodes."""

from __future__ import annotations

from ...support.quantities import Exact
from ...support.validation import as_size
from ..network.direct_graph import DirectGraph
from ..network.topology import Topology
from .arcs import bidirectional_arcs


def double_binary_tree(n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Two binary trees of bidirectional links in which no compute node but the root is an inner node of both.

    A baseline of the direct-connect paper, section 8.2, after the two-tree algorithms of Sanders, Speck and Träff.
    The variant is that of `tree_pair`.

    Parameters
    ----------
    n : int
        Nodes, at least 2; node 0 is the root of both trees.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link, in each direction.

    Returns
    -------
    Topology
        Not regular: nodes have up to 4 links; a link of both trees counts twice.

    Examples
    --------
    >>> double_binary_tree(1024).graph.diameter
    16
    """
    n = as_size(n, "n", least=2)
    edges = [(parent, node) for parents in tree_pair(n) for node, parent in enumerate(parents) if node]
    graph = DirectGraph.from_arcs(n, bidirectional_arcs(edges), f"DoubleBinaryTree({n})")
    return Topology.from_graph(graph, bandwidth=bandwidth, latency=latency)


def tree_pair(count: int) -> tuple[list[int], list[int]]:
    """Return the parents of nodes 0 to `count` - 1 in two trees with root 0 that share no other inner node.

    The first tree numbers the nodes below the root, whose parent is -1, in order, so odd nodes are leaves.  The second
    tree is its mirror image, or for an even `count` its shift by one, which exchanges odd and even nodes.
    """
    others = count - 1
    first = [-1, *(_parent_in_order(node, others) for node in range(1, count))]
    moved = [0, *(others + 1 - node if others % 2 == 0 else node % others + 1 for node in range(1, count))]
    second = [-1] * count
    for node in range(1, count):
        second[moved[node]] = moved[first[node]]
    return first, second


def _parent_in_order(node: int, count: int) -> int:
    """Return a node's parent in the in-order numbered binary tree of nodes 1 to `count`; 0 for its top."""
    lowest = node & -node
    above = (node ^ lowest) | (lowest << 1)
    return above if above <= count else node ^ lowest
