"""Complete bipartite and Hamming graphs, Diamond, and double binary trees."""

import numpy as np

from ...support.quantities import Exact
from ...support.validation import as_size
from ..network.topology import Topology
from .arcs import bidirectional_arcs, check_graph, topology_from_arcs, topology_from_heads

DIAMOND = ((1, 2), (2, 3), (4, 5), (0, 6), (0, 6), (3, 7), (5, 7), (1, 4))  # heads of the two arcs out of each node


def complete_bipartite(degree: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Complete bipartite graph K_{d,d}: a link between each of d compute nodes and each of d others.

    Direct-connect paper, Figure 1 and Table 9.  Nodes 0 to d - 1 are on one side, d to 2 d - 1 on the other.

    Parameters as for `ring`, with the degree, the paper's d, from 1 to 724, for n.
    """
    degree = as_size(degree, "degree", most=724)
    sides = np.repeat([[1], [0]], degree, axis=0) * degree
    return topology_from_heads(sides + np.arange(degree), f"K({degree}, {degree})", bandwidth, latency)


def hamming(dimension: int, size: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Hamming graph H(n, q): words of n letters out of q, linked if they differ in one place.

    The Cartesian power of a complete graph (direct-connect paper, Table 9); of two letters, a hypercube.  Nodes are
    numbered in the order of their words.

    Parameters as for `ring`, with the dimension, the paper's n, and the size, the paper's q, of at least 2, for n.
    There are q**n nodes of degree n (q - 1).
    """
    dimension, size = as_size(dimension, "dimension", most=16), as_size(size, "size", least=2)
    name = f"H({dimension}, {size})"
    check_graph(name, size**dimension, dimension * (size - 1))
    nodes, places = np.arange(size**dimension)[:, None], size ** np.arange(dimension)[::-1]
    letters = nodes // places % size
    changed = (letters[:, :, None] + np.arange(1, size)) % size
    heads = nodes[:, :, None] + (changed - letters[:, :, None]) * places[:, None]
    return topology_from_heads(heads.reshape(len(nodes), -1), name, bandwidth, latency)


def diamond(*, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Diamond: 8 compute nodes of degree 2 with a bandwidth-optimal allgather in 3 steps.

    Direct-connect paper, Figure 19 and Table 9.  The schedule, in `base_schedule_rows`, is not breadth-first.  The arcs
    agree with everything that the paper prints of Diamond: steps, bandwidth, and in Table 7 the all-to-all throughput
    of its expansions.  The transpose agrees as well.

    Parameters
    ----------
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link.
    """
    return topology_from_heads(np.array(DIAMOND, dtype=np.int64), "Diamond", bandwidth, latency)


def double_binary_tree(n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Two binary trees of bidirectional links in which no compute node but the root is an inner node of both.

    A baseline of the direct-connect paper, section 8.2, after the two-tree algorithms of Sanders, Speck and Träff.  The
    variant is that of `double_binary_tree_parents`.  It is not regular: nodes have up to 4 links; a link of both trees
    counts twice.  Node 0 is the root of both.  Parameters as for `ring`.
    """
    n = as_size(n, "n", least=2)
    edges = [(parent, node) for parents in double_binary_tree_parents(n) for node, parent in enumerate(parents) if node]
    return topology_from_arcs(n, bidirectional_arcs(edges), f"DoubleBinaryTree({n})", bandwidth, latency)


def double_binary_tree_parents(count: int) -> tuple[list[int], list[int]]:
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
