"""How fast an all-to-all can be on a direct-connect network, within a gap that is asked for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ..errors import NoAnswerError
from ..topologies import DirectGraph, automorphisms
from ..topologies.validation import Exact, as_factor

__all__ = ["all_to_all_rate_bounds"]


def all_to_all_rate_bounds(graph: DirectGraph, gap: Exact = Fraction(1, 100)) -> tuple[Fraction, Fraction]:
    """Bound the rate f at which every node can send to every other at once, from below and from above.

    Parameters
    ----------
    graph : DirectGraph
        Strongly connected.
    gap : number
        At most what the bounds may be apart, as a part of the upper one: between 0 and 1.

    Returns
    -------
    tuple of (Fraction, Fraction)
        In bandwidths of one link, the scale of the direct-connect paper's linear program (3): what a flow that was
        found reaches, and what no flow can pass.

    Raises
    ------
    UnsupportedError
        If the gap is not between 0 and 1.
    BoundError
        If some node cannot reach another.

    Notes
    -----
    `collopt.solvers.concurrent_flow` with the symmetries of the graph: the more nodes are alike, the less work it is.

    Examples
    --------
    >>> from collopt.topologies import hypercube
    >>> lower, upper = all_to_all_rate_bounds(DirectGraph.of(hypercube(3)), "0.01")
    >>> lower <= Fraction(1, 4) <= upper, 1 - lower / upper <= Fraction(1, 100)
    (True, True)
    """
    from ..solvers.concurrent_flow import concurrent_flow

    try:
        alike = automorphisms(graph)
    except NoAnswerError:
        alike = None  # it takes longer, and comes to the same
    demands = np.broadcast_to(np.int64(1), (graph.num_nodes, graph.num_nodes))
    found = concurrent_flow(
        graph.num_nodes, *graph.adjacency, demands, gap=as_factor(gap, "the gap"), automorphisms=alike
    )
    return found.lower, found.upper
