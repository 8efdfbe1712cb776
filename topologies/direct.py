"""Families in which compute nodes are joined directly, without switches: ring, torus, hypercube, complete graph.

They are abstract: unit bandwidth and no latency unless the caller says otherwise.
"""

from __future__ import annotations

from itertools import product
from math import prod

from ..errors import TopologyError
from .sizes import as_size, check_links
from .topology import Topology
from .validation import Exact

__all__ = ["complete", "hypercube", "ring", "torus"]


def ring(n: int, *, bandwidth: Exact = 1, latency: Exact = 0, bidirectional: bool = True) -> Topology:
    """Ring of n compute nodes.

    Parameters
    ----------
    n : int
        2 to 65536; nodes are called ``gpu0``, ``gpu1``, ... along the ring.
    bandwidth : int, float, str or Fraction
        GB/s of each link, in each direction.
    latency : int, float, str or Fraction
        Microseconds of each link.
    bidirectional : bool
        Whether data may travel both ways round.

    Returns
    -------
    Topology

    Raises
    ------
    TopologyError
        If a value is not usable.

    Notes
    -----
    A node always has as many ports as the name says: in a bidirectional ring of two, both ports of a node lead to the
    same neighbour, so that link has twice the bandwidth.

    Examples
    --------
    >>> ring(2, bandwidth=25).link("gpu0", "gpu1").bandwidth
    Fraction(50, 1)
    """
    n = as_size(n, "n", least=2)
    links = [(f"gpu{node}", f"gpu{(node + 1) % n}", bandwidth, latency) for node in range(n)]
    return Topology.from_links(
        links, compute=[f"gpu{node}" for node in range(n)], bidirectional=bidirectional, name=f"ring-{n}"
    )


def torus(*shape: int, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Torus: a grid of compute nodes in which every row is a bidirectional ring.

    Parameters
    ----------
    *shape : int
        Nodes along each dimension, each 2 or more: ``torus(4, 4, 2)``.
    bandwidth : int, float, str or Fraction
        GB/s of each link, in each direction.
    latency : int, float, str or Fraction
        Microseconds of each link.

    Returns
    -------
    Topology
        Node ``gpu1.0.3`` sits at coordinates (1, 0, 3); ranks count the last coordinate fastest.

    Raises
    ------
    TopologyError
        If a value is not usable, or there would be more than 2**20 links.

    Notes
    -----
    Every node has two ports per dimension.  Along a dimension of size 2 both lead to the same neighbour, so that link
    has twice the bandwidth.

    Examples
    --------
    >>> torus(4, 2).link("gpu0.0", "gpu0.1").bandwidth
    Fraction(2, 1)
    >>> torus(4, 2).link("gpu0.0", "gpu1.0").bandwidth
    Fraction(1, 1)
    """
    if not shape:
        raise TopologyError("the shape of the torus is empty; expected one size per dimension, such as torus(4, 4)")
    sizes = [as_size(size, f"dimension {number} of the torus", least=2) for number, size in enumerate(shape)]
    label = "x".join(map(str, sizes))
    check_links(2 * len(sizes) * prod(sizes), f"torus {label}")
    links = []
    for place in product(*map(range, sizes)):
        for axis, size in enumerate(sizes):
            beside = (*place[:axis], (place[axis] + 1) % size, *place[axis + 1 :])
            links.append((_place_name(place), _place_name(beside), bandwidth, latency))
    compute = [_place_name(place) for place in product(*map(range, sizes))]
    return Topology.from_links(links, compute=compute, bidirectional=True, name=f"torus-{label}")


def hypercube(dimension: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Hypercube of 2**dimension compute nodes; neighbours differ in one bit of their rank.

    Parameters
    ----------
    dimension : int
        1 to 15.
    bandwidth : int, float, str or Fraction
        GB/s of each link, in each direction.
    latency : int, float, str or Fraction
        Microseconds of each link.

    Returns
    -------
    Topology

    Raises
    ------
    TopologyError
        If a value is not usable.

    Examples
    --------
    >>> [link.head for link in hypercube(3).out_links("gpu5")]
    ['gpu4', 'gpu7', 'gpu1']
    """
    dimension = as_size(dimension, "dimension", most=15)
    nodes = range(2**dimension)
    links = [
        (f"gpu{node}", f"gpu{node ^ (1 << bit)}", bandwidth, latency) for node in nodes for bit in range(dimension)
    ]
    return Topology.from_links(links, compute=[f"gpu{node}" for node in nodes], name=f"hypercube-{dimension}")


def complete(n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Complete graph: a link between every two of n compute nodes.

    Parameters
    ----------
    n : int
        2 to 1024.
    bandwidth : int, float, str or Fraction
        GB/s of each link, in each direction.
    latency : int, float, str or Fraction
        Microseconds of each link.

    Returns
    -------
    Topology

    Raises
    ------
    TopologyError
        If a value is not usable.

    Examples
    --------
    >>> complete(8, bandwidth=64)
    <Topology 'complete-8': 8 ranks, 56 links>
    """
    n = as_size(n, "n", least=2, most=1024)
    nodes = range(n)
    links = [(f"gpu{tail}", f"gpu{head}", bandwidth, latency) for tail in nodes for head in nodes if tail != head]
    return Topology.from_links(links, compute=[f"gpu{node}" for node in nodes], name=f"complete-{n}")


def _place_name(place: tuple[int, ...]) -> str:
    return "gpu" + ".".join(map(str, place))
