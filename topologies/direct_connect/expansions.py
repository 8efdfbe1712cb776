"""Graph expansions of the direct-connect paper (section 5, A.6): line graph, degree expansion, Cartesian product.

`collopt.schedules` has the functions that expand a schedule along with its graph.  The node numbering of the result is
part of the interface, as schedules and files refer to nodes by number.
"""

from functools import reduce

import numpy as np

from ...errors import UnsupportedError
from ...support.validation import as_size, check_links
from ..network.direct_graph import DirectGraph, as_direct_graph
from .arcs import line_graph_name, operand

MAX_TIMES = 64  # more factors or repetitions exceed the limit on links for every graph


def line_graph(graph: DirectGraph, times: int = 1) -> DirectGraph:
    """Line graph: a node for every arc, with arcs from those that enter a node of the old graph to those that leave it.

    A d-regular graph of N nodes becomes a d-regular one of d N nodes, whose diameter is larger by 1.  Node k of the
    result is arc k of `graph`.  Direct-connect paper, section 5.1 and Definition 12.

    Parameters
    ----------
    graph : DirectGraph
        Regular.
    times : int
        Number of repetitions.

    Examples
    --------
    >>> triangle = DirectGraph.from_arcs(3, [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)], "K(3)")
    >>> line_graph(triangle, 2)
    <DirectGraph L^2(K(3)): 12 nodes, 24 arcs>
    """
    as_direct_graph(graph)
    times = as_size(times, "times", high=MAX_TIMES)
    degree = graph.degree
    name = line_graph_name(graph.name, times)
    check_links(graph.num_nodes * degree ** (times + 1), name)
    for _ in range(times):
        leaving, tails = np.arange(graph.num_arcs).reshape(graph.num_nodes, degree), np.arange(graph.num_arcs)
        heads = leaving[graph.heads].reshape(-1)
        graph = DirectGraph(graph.num_arcs, np.repeat(tails, degree), heads, graph.name)
    return graph.renamed(name)


def degree_expansion(graph: DirectGraph, copies: int) -> DirectGraph:
    """Degree expansion: copies of every node, each linked to every copy of its neighbors.

    A d-regular graph of N nodes becomes an nd-regular one of nN nodes.  Copy i of node v is node ``v * copies + i``.
    The direct-connect paper's G * n: section 5.2 and Definition 13.

    Parameters
    ----------
    graph : DirectGraph
        Without self-loops, which would link copies of the same node.
    copies : int
        The paper's n.
    """
    as_direct_graph(graph)
    copies = as_size(copies, "copies")
    name = f"{operand(graph.name)}*{copies}"
    if graph.num_self_loops:
        node = int(graph.tails[graph.tails == graph.heads][0])
        raise UnsupportedError(
            f"{graph.name} has a self-loop at node {node}; degree expansion is for graphs without self-loops"
        )
    check_links(graph.num_arcs * copies**2, name)
    copy = np.arange(copies)
    tails = graph.tails[:, None, None] * copies + copy[:, None]
    heads = graph.heads[:, None, None] * copies + copy
    tails, heads = np.broadcast_arrays(tails, heads)
    return DirectGraph(graph.num_nodes * copies, tails.reshape(-1), heads.reshape(-1), name)


def cartesian_product(*graphs: DirectGraph) -> DirectGraph:
    """Cartesian product: nodes are tuples, and every arc changes one entry along an arc of that factor.

    Tuples are numbered in lexicographic order, the last entry fastest, as numpy's `ravel_multi_index` does.  Self-loops
    and parallel arcs are kept.  The direct-connect paper's G1 □ G2 □ ...: section 5.3 and Definition 3.

    Examples
    --------
    >>> pair = DirectGraph.from_arcs(2, [(0, 1), (1, 0)], "K(2)")
    >>> triangle = DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)")
    >>> cartesian_product(pair, triangle)
    <DirectGraph K(2) □ UniRing(1, 3): 6 nodes, 12 arcs>
    """
    if not graphs:
        raise UnsupportedError("the list of factors is empty; expected at least one DirectGraph")
    for graph in graphs:
        as_direct_graph(graph)
    name = graphs[0].name if len(graphs) == 1 else " □ ".join(operand(graph.name, "□") for graph in graphs)
    nodes, arcs = 1, 0
    for graph in graphs:
        nodes, arcs = nodes * graph.num_nodes, arcs * graph.num_nodes + nodes * graph.num_arcs
    check_links(max(nodes, arcs), name)
    return reduce(_product_of_two, graphs).renamed(name)


def _product_of_two(left: DirectGraph, right: DirectGraph) -> DirectGraph:
    """Multiply two graphs; the pair (u, v) has the number ``u * right.num_nodes + v``."""
    size = right.num_nodes
    high, low = np.arange(left.num_nodes) * size, np.arange(size)
    tails, heads = (
        np.concatenate([np.add.outer(of_left * size, low).reshape(-1), np.add.outer(high, of_right).reshape(-1)])
        for of_left, of_right in ((left.tails, right.tails), (left.heads, right.heads))
    )
    return DirectGraph(left.num_nodes * size, tails, heads, left.name)


def cartesian_power(graph: DirectGraph, n: int) -> DirectGraph:
    """Cartesian product of `n` copies of a graph, the paper's G^□n; Parameters as for `line_graph`, but for any graph.

    Examples
    --------
    >>> two = DirectGraph.from_arcs(2, [(0, 1), (1, 0)], "K(2)")
    >>> cartesian_power(two, 3)
    <DirectGraph K(2)^□3: 8 nodes, 24 arcs>
    """
    as_direct_graph(graph)
    n = as_size(n, "n", high=MAX_TIMES)
    name = graph.name if n == 1 else f"{operand(graph.name)}^□{n}"
    check_links(n * graph.num_arcs * graph.num_nodes ** (n - 1), name)
    return cartesian_product(*[graph] * n).renamed(name)


def parallel(graph: DirectGraph, times: int) -> DirectGraph:
    """Repeat every arc several times; Parameters as for `line_graph`, but for any graph."""
    as_direct_graph(graph)
    times = as_size(times, "times")
    name = graph.name if times == 1 else f"{times}·{operand(graph.name)}"
    check_links(graph.num_arcs * times, name)
    return DirectGraph(graph.num_nodes, np.repeat(graph.tails, times), np.repeat(graph.heads, times), name)


def bidirectional(graph: DirectGraph) -> DirectGraph:
    """Union of a graph and its transpose, keeping parallel arcs: twice the degree, the same nodes (A.6)."""
    as_direct_graph(graph)
    base = operand(graph.name)
    name = f"{base} ∪ {base}^T"
    check_links(2 * graph.num_arcs, name)
    tails, heads = np.concatenate([graph.tails, graph.heads]), np.concatenate([graph.heads, graph.tails])
    return DirectGraph(graph.num_nodes, tails, heads, name)
