"""Graph properties: Moore bounds, reverse symmetry, vertex transitivity, distance regularity, distances.

All are computed from the arcs, never assumed of a family; expensive ones are cached by graph.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import wraps
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import as_size
from ..network.direct_graph import DirectGraph, as_direct_graph
from .isomorphism import isomorphism, orbits

MAX_NODES = 2**62  # the graphs are not built


def moore_bound(degree: int, diameter: int) -> int:
    """Moore bound: the most nodes of a directed graph, M(d, k) = 1 + d + d² + ... + d^k.

    Direct-connect paper, Definition 9.

    Parameters
    ----------
    degree : int
        Arcs out of every node, d.
    diameter : int
        k.

    Returns
    -------
    int

    Examples
    --------
    >>> moore_bound(4, 4), moore_bound(1, 4)
    (341, 5)
    """
    degree, diameter = as_size(degree, "degree"), as_size(diameter, "diameter", least=0)
    return sum(int(degree**hops) for hops in range(diameter + 1))


def undirected_moore_bound(degree: int, diameter: int) -> int:
    """Moore bound of bidirectional graphs: 1 + d (1 + (d - 1) + ... + (d - 1)^(k - 1)).

    Parameters
    ----------
    degree : int
        Links at every node, d.
    diameter : int
        k.

    Returns
    -------
    int

    Examples
    --------
    >>> undirected_moore_bound(3, 2), undirected_moore_bound(2, 4)
    (10, 9)
    """
    degree, diameter = as_size(degree, "degree"), as_size(diameter, "diameter", least=0)
    return 1 + degree * sum(int((degree - 1) ** hops) for hops in range(diameter))


def moore_steps(nodes: int, degree: int) -> int:
    """Lower bound on the steps of an allgather by the Moore bound: T_L*(N, d) in multiples of alpha.

    Direct-connect paper, Definition 10 and appendix C.1.

    Parameters
    ----------
    nodes, degree : int
        N and d.

    Returns
    -------
    int
        The least k with M(d, k) >= N.

    Examples
    --------
    >>> moore_steps(1024, 4), moore_steps(8, 1)
    (5, 7)
    """
    nodes, degree = as_size(nodes, "nodes", most=MAX_NODES), as_size(degree, "degree")
    if degree == 1:
        return nodes - 1
    steps = reached = 0
    layer = 1
    while (reached := reached + layer) < nodes:
        steps, layer = steps + 1, layer * degree
    return steps


def undirected_moore_steps(nodes: int, degree: int) -> int:
    """Lower bound on the steps of an allgather on bidirectional graphs: T_L** in multiples of alpha.

    Direct-connect paper, Table 8, last column.

    Parameters
    ----------
    nodes, degree : int
        N and d.

    Returns
    -------
    int
        The least k with `undirected_moore_bound` ``(d, k) >= N``.

    Examples
    --------
    >>> undirected_moore_steps(21, 4), undirected_moore_steps(189, 4), undirected_moore_steps(728, 4)
    (3, 5, 6)
    """
    nodes, degree = as_size(nodes, "nodes", most=MAX_NODES), as_size(degree, "degree")
    if degree == 1 and nodes > 2:
        raise UnsupportedError(
            f"bidirectional links of degree 1 cannot connect {nodes} nodes; expected a degree of 2 or more"
        )
    if degree == 2:
        return nodes // 2
    steps, reached, layer = 0, 1, degree
    while reached < nodes:
        steps, reached, layer = steps + 1, reached + layer, layer * (degree - 1)
    return steps


def bandwidth_optimum(nodes: int) -> Fraction:
    """Lower bound on T_B of every allgather, in multiples of M/B: T_B* = (N - 1) / N.

    Direct-connect paper, Theorem 4.

    Parameters
    ----------
    nodes : int
        N.

    Returns
    -------
    Fraction

    Examples
    --------
    >>> bandwidth_optimum(1024)
    Fraction(1023, 1024)
    """
    nodes = as_size(nodes, "nodes", most=MAX_NODES)
    return Fraction(nodes - 1, nodes)


Answer = TypeVar("Answer")


def _cached(compute: Callable[[DirectGraph], Answer]) -> Callable[[DirectGraph], Answer]:
    """Cache the results of a function by graph."""
    cache: WeakKeyDictionary[DirectGraph, Answer] = WeakKeyDictionary()

    @wraps(compute)
    def cached(graph: DirectGraph) -> Answer:
        if as_direct_graph(graph) not in cache:
            cache[graph] = compute(graph)
        return cache[graph]

    return cached


def is_moore_optimal(graph: DirectGraph) -> bool:
    """Return whether the diameter is the lower bound of the Moore bound.

    Direct-connect paper, Definition 10, with the number of steps that a breadth-first broadcast takes.

    Parameters
    ----------
    graph : DirectGraph
        Regular; self-loops occupy ports.

    Returns
    -------
    bool
    """
    return as_direct_graph(graph).diameter == moore_steps(graph.num_nodes, graph.degree)


@_cached
def reverse_symmetry(graph: DirectGraph) -> IntArray | None:
    """Find an isomorphism from a graph to its transpose.

    Parameters
    ----------
    graph : DirectGraph
        Any.

    Returns
    -------
    ndarray of int64, shape (nodes,), or None
        It is also one from the transpose to the graph; None if there is none.  `NoAnswerError` as by `isomorphism`.
    """
    return isomorphism(graph, graph.transpose())


def is_reverse_symmetric(graph: DirectGraph) -> bool:
    """Return whether a graph is isomorphic to its transpose, so that schedules can be reversed (Theorem 2).

    Direct-connect paper, Definition 6.

    Parameters
    ----------
    graph : DirectGraph
        Any.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_reverse_symmetric(DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)"))
    True
    """
    return reverse_symmetry(graph) is not None


@_cached
def is_vertex_transitive(graph: DirectGraph) -> bool:
    """Return whether automorphisms map each node to every other.

    Parameters
    ----------
    graph : DirectGraph
        Any.

    Returns
    -------
    bool
        `NoAnswerError` as by `automorphisms`.

    Examples
    --------
    >>> is_vertex_transitive(DirectGraph.from_arcs(3, [(0, 1), (1, 0), (1, 2), (2, 1)], "path"))
    False
    """
    return not orbits(graph).any()


class IntersectionArray(NamedTuple):
    """Intersection array of a distance-regular graph.

    Attributes
    ----------
    farther : tuple of int
        b_0, ..., b_(k-1): of the neighbors of a node at distance i, those at distance i + 1.
    nearer : tuple of int
        c_1, ..., c_k: those at distance i - 1.
    """

    farther: tuple[int, ...]
    nearer: tuple[int, ...]


@_cached
def intersection_array(graph: DirectGraph) -> IntersectionArray | None:
    """Compute the intersection array of a distance-regular graph.

    Direct-connect paper, Definition 17: with x and y at distance h, the number of nodes at distance i from x and j
    from y depends on h, i and j only.  In an undirected graph j = 1 implies all, so only that is checked.

    Parameters
    ----------
    graph : DirectGraph
        Strongly connected.

    Returns
    -------
    IntersectionArray or None
        None if the graph is not distance-regular.

    Examples
    --------
    >>> hexagon = [(i, (i + step) % 6) for i in range(6) for step in (1, 5)]
    >>> intersection_array(DirectGraph.from_arcs(6, hexagon, "BiRing(2, 6)"))
    IntersectionArray(farther=(2, 1, 1), nearer=(1, 1, 2))
    """
    if not (graph.is_simple and graph.is_bidirectional):
        return None
    distances, diameter = graph.distances, graph.diameter
    found = []
    for change in (1, -1):
        counts = np.zeros(distances.shape, dtype=np.int64)  # Neighbors of a node, [node, source].
        np.add.at(counts, graph.tails, (distances[:, graph.heads] - distances[:, graph.tails] == change).T)
        at_distance = [counts[hops == distances.T] for hops in range(diameter + 1)]
        if any((each != each[0]).any() for each in at_distance):
            return None
        found.append([int(each[0]) for each in at_distance])
    return IntersectionArray(tuple(found[0][:-1]), tuple(found[1][1:]))


def is_distance_regular(graph: DirectGraph) -> bool:
    """Return whether a graph is bidirectional, simple, and distance-regular; see `intersection_array`.

    Parameters
    ----------
    graph : DirectGraph
        Strongly connected.

    Returns
    -------
    bool
    """
    return intersection_array(graph) is not None


def distance_sum(graph: DirectGraph) -> int:
    """Sum of the distances from every node to every other: a lower bound on the hops of an all-to-all.

    Parameters
    ----------
    graph : DirectGraph
        Strongly connected.

    Returns
    -------
    int
    """
    return int(as_direct_graph(graph).distances.sum(dtype=np.int64))


def average_distance(graph: DirectGraph) -> Fraction:
    """Mean distance between different nodes, in hops.

    Parameters
    ----------
    graph : DirectGraph
        Strongly connected.

    Returns
    -------
    Fraction

    Examples
    --------
    >>> average_distance(DirectGraph.from_arcs(3, [(0, 1), (1, 2), (2, 0)], "UniRing(1, 3)"))
    Fraction(3, 2)
    """
    return Fraction(distance_sum(graph), graph.num_nodes * (graph.num_nodes - 1))
