"""Moore bounds on nodes and diameter, and the bandwidth optimum."""

from __future__ import annotations

from fractions import Fraction

from ...errors import UnsupportedError
from ...support.validation import as_size

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
