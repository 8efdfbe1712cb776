"""Whether two direct-connect graphs are the same up to the numbers of their nodes, and which nodes are alike.

Every mapping is checked arc by arc, and that there is none is only said when all were ruled out; see
`collopt.topologies.graphs.isomorphism_search` for how.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ..network.direct_graph import DirectGraph, as_direct_graph
from .isomorphism_search import NodeMatching, keeps_arcs

__all__ = ["automorphisms", "isomorphism", "orbit_mappings", "orbits"]

IntArray = npt.NDArray[np.int64]


def isomorphism(graph: DirectGraph, other: DirectGraph) -> IntArray | None:
    """Find a renumbering of nodes that turns one graph into another.

    Parameters
    ----------
    graph, other : DirectGraph
        Any; parallel arcs and self-loops count as often as they are there.

    Returns
    -------
    ndarray of int64, shape (nodes,), or None
        To which node of `other` each node of `graph` goes; None if the graphs are not isomorphic.

    Raises
    ------
    NoAnswerError
        If `node_matching.MAX_ATTEMPTS` were not enough to find one or to rule all out.

    Examples
    --------
    >>> ring = DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)")
    >>> isomorphism(ring, ring.transpose())
    array([0, 2, 1])
    """
    as_direct_graph(graph)
    as_direct_graph(other)
    if graph.num_nodes != other.num_nodes or graph.num_arcs != other.num_arcs:
        return None
    same = np.arange(graph.num_nodes)
    if keeps_arcs(graph, other, same):
        return same
    return NodeMatching(graph, other).run()


def automorphisms(graph: DirectGraph) -> IntArray:
    """Find automorphisms of a graph, enough to see which nodes are alike.

    Parameters
    ----------
    graph : DirectGraph
        Any.

    Returns
    -------
    ndarray of int64, shape (found, nodes)
        Each row maps the nodes, and is checked arc by arc; the identity is left out.  The group that they generate has
        the same orbits of nodes as the group of all automorphisms, of which it may be a proper subgroup.

    Raises
    ------
    NoAnswerError
        If `node_matching.MAX_ATTEMPTS` were not enough to tell two nodes apart or to map one to the other.

    Examples
    --------
    >>> automorphisms(DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)"))
    array([[1, 2, 0]])
    """
    as_direct_graph(graph)
    found = list(orbit_mappings(NodeMatching(graph, graph)))
    return np.array(found, dtype=np.int64).reshape(-1, graph.num_nodes)


def orbit_mappings(search: NodeMatching) -> Iterator[IntArray]:
    """Look for mappings of a graph to itself until it is known which nodes are alike.

    Parameters
    ----------
    search : NodeMatching
        Between the graph and itself.

    Yields
    ------
    ndarray of int64, shape (nodes,)
        One that takes a node to another which those before did not, even together; see `automorphisms`.

    Raises
    ------
    NoAnswerError
        As `automorphisms`.
    """
    labels = np.arange(search.size)
    for cell in search.cells():
        first: list[int] = []  # One node of each orbit of this cell that is known so far.
        for node in cell.tolist():
            for like in first:
                if labels[node] == labels[like]:
                    break
                if (mapping := search.run((like, node))) is not None:
                    yield mapping
                    labels = _merged(labels, mapping)
                    break
            else:
                first.append(node)


def orbits(graph: DirectGraph) -> IntArray:
    """Tell which nodes are alike: some automorphism takes one to the other.

    Parameters
    ----------
    graph : DirectGraph
        Any.

    Returns
    -------
    ndarray of int64, shape (nodes,)
        The least node of each node's orbit.  Two nodes have the same if and only if they are alike.

    Raises
    ------
    NoAnswerError
        As `automorphisms`.

    Examples
    --------
    >>> orbits(DirectGraph.from_arcs(3, [(0, 1), (1, 0), (1, 2), (2, 1)], "path"))
    array([0, 1, 0])
    """
    found = automorphisms(graph)
    labels = np.arange(graph.num_nodes)
    for mapping in found:
        labels = _merged(labels, mapping)
    return labels


def _merged(labels: IntArray, mapping: IntArray) -> IntArray:
    """Give nodes that a mapping takes to each other the same label, the least of them."""
    while True:
        least = labels.copy()
        np.minimum.at(least, labels, labels[mapping])
        np.minimum.at(least, labels[mapping], labels)
        merged = least[labels]
        if (merged == labels).all():
            return labels
        labels = merged
