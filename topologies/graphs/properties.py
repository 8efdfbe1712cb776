"""Bounds of the direct-connect paper on steps and bandwidth of all graphs."""

from fractions import Fraction

from ...errors import UnsupportedError
from ...support.validation import as_size

MAX_NODES = 2**62  # the graphs are not built


def moore_steps(nodes: int, degree: int) -> int:
    """Lower bound on the steps of an allgather by the Moore bound: T_L*(N, d) in multiples of alpha.

    Direct-connect paper, Definition 10 and appendix C.1: the least k with 1 + d + d² + ... + d^k >= N (Definition 9).

    Parameters
    ----------
    nodes, degree : int
        N and d.

    Examples
    --------
    >>> moore_steps(1024, 4), moore_steps(8, 1)
    (5, 7)
    """
    nodes, degree = as_size(nodes, "nodes", most=MAX_NODES), as_size(degree, "degree")
    return nodes - 1 if degree == 1 else _fewest_layers(nodes, degree, degree)


def undirected_moore_steps(nodes: int, degree: int) -> int:
    """Lower bound on the steps of an allgather on bidirectional graphs: T_L** in multiples of alpha.

    Direct-connect paper, Table 8, last column: the least k with 1 + d (1 + (d - 1) + ... + (d - 1)^(k - 1)) >= N.
    Parameters as for `moore_steps`.
    """
    nodes, degree = as_size(nodes, "nodes", most=MAX_NODES), as_size(degree, "degree")
    if degree == 1 and nodes > 2:
        raise UnsupportedError(
            f"bidirectional links of degree 1 cannot connect {nodes} nodes; expected a degree of 2 or more"
        )
    return nodes // 2 if degree == 2 else _fewest_layers(nodes, degree, degree - 1)


def _fewest_layers(nodes: int, layer: int, growth: int) -> int:
    """Layers that reach all nodes from one, the first of so many nodes and each next one so many times as large."""
    steps, reached = 0, 1
    while reached < nodes:
        steps, reached, layer = steps + 1, reached + layer, layer * growth
    return steps


def bandwidth_optimum(nodes: int) -> Fraction:
    """Lower bound on T_B of every allgather, in multiples of M/B: T_B* = (N - 1) / N.

    Direct-connect paper, Theorem 4.
    """
    nodes = as_size(nodes, "nodes", most=MAX_NODES)
    return Fraction(nodes - 1, nodes)
