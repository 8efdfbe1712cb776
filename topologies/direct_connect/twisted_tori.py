"""Twisted tori and twisted hypercubes."""

from __future__ import annotations

from math import prod

import numpy as np

from ...errors import TopologyError
from ...support.quantities import Exact
from ...support.validation import as_size, shown
from ..network.direct_graph import DirectGraph
from ..network.topology import Topology
from .arcs import arcs_to, bidirectional_arcs, check_graph, heads_topology


def twisted_torus(*shape: int, twist: int | None = None, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Torus whose wraparound links are shifted along other dimensions.

    Twisted tori of Cámara et al. (IEEE Transactions on Parallel and Distributed Systems 21, 2010), which the
    direct-connect paper cites as [26]; TPU v4 has the shapes k x k x 2k and k x 2k x 2k.  Every node has two links
    per dimension; two of them that lead to the same neighbor are merged, as in `torus`.

    Parameters
    ----------
    *shape : int
        Nodes along each of at least two dimensions: some k and the others 2 k, such as 4 x 4 x 8, 4 x 8 x 8 or 4 x 8.
        With `twist`, any two sizes; at most 2**16 nodes and 2**20 links.
    twist : int, optional
        For two dimensions: shift of the wraparound links of the first along the second, less than its size.  By default
        the wraparound links of a dimension of size k are shifted by k along all those of size 2 k.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link, in each direction.

    Returns
    -------
    Topology
        Ranks count the last coordinate fastest.

    Examples
    --------
    >>> from collopt.topologies import torus
    >>> twisted_torus(4, 4, 8).graph.diameter, torus(4, 4, 8).graph.diameter
    (6, 8)
    >>> twisted_torus(3, 5, twist=2)
    <Topology 'TwistedTorus(3, 5, twist 2)': 15 ranks, 60 links>
    """
    sizes = [as_size(size, f"dimension {number} of the torus", least=2) for number, size in enumerate(shape)]
    name = f"TwistedTorus({', '.join(map(str, sizes))}{'' if twist is None else f', twist {shown(twist)}'})"
    twists = _twists(sizes) if twist is None else [[0, _as_twist(twist, sizes)], [0, 0]]
    check_graph(name, prod(sizes), 2 * len(sizes))
    coordinates = np.indices(sizes).reshape(len(sizes), -1)
    neighbors = []
    for axis, size in enumerate(sizes):
        around = coordinates[axis] == size - 1
        neighbor = coordinates + around * np.array(twists[axis])[:, None]
        neighbor[axis] += 1
        neighbors.append(np.ravel_multi_index(tuple(neighbor), tuple(sizes), mode="wrap"))
    graph = DirectGraph.from_arcs(prod(sizes), bidirectional_arcs(arcs_to(np.column_stack(neighbors))), name)
    return Topology.from_graph(graph, bandwidth=bandwidth, latency=latency)


def twisted_hypercube(dimension: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Hypercube with two opposite links of one square crossed, which reduces its diameter by one.

    The twisted cube of Esfahanian, Ni and Sagan (IEEE Transactions on Computers 40, 1991), which the direct-connect
    paper compares with the hypercube in section A.1.

    Parameters
    ----------
    dimension : int
        3 to 15; there are 2**dimension nodes.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link, in each direction.

    Returns
    -------
    Topology
        Links 0-3 and 1-2 replace 0-1 and 2-3; all other neighbors differ in one bit.

    Examples
    --------
    >>> from collopt.topologies import hypercube
    >>> twisted_hypercube(3).graph.diameter, hypercube(3).graph.diameter
    (2, 3)
    """
    dimension = as_size(dimension, "dimension", least=3, most=15)
    heads = np.arange(2**dimension)[:, None] ^ (1 << np.arange(dimension))
    heads[:4, 0] = 3, 2, 1, 0
    return heads_topology(heads, f"TwistedQ({dimension})", bandwidth, latency)


def _as_twist(twist: object, sizes: list[int]) -> int:
    if len(sizes) != 2:
        raise TopologyError(f"twist goes with two dimensions; expected a shape of two sizes, not {shown(sizes)}")
    return as_size(twist, "twist", least=0, most=sizes[1] - 1)


def _twists(sizes: list[int]) -> list[list[int]]:
    """Return the shift of the wraparound links of each dimension along every dimension."""
    short = min(sizes, default=0)
    if set(sizes) != {short, 2 * short}:
        raise TopologyError(
            f"the shape of the twisted torus is {shown(sizes)}; expected sizes k and 2 k, both of them, such as "
            "4, 4, 8, or two sizes and a twist"
        )
    along = [short if size > short else 0 for size in sizes]
    return [along if size == short else [0] * len(sizes) for size in sizes]
