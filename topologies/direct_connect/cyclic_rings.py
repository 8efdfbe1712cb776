"""Rings with parallel links, and shifted rings."""

from __future__ import annotations

from math import gcd

from ...errors import TopologyError
from ...support.quantities import Exact
from ...support.validation import as_size
from ..network.topology import Topology
from .circulants import cyclic_graph


def unidirectional_ring(degree: int, n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Ring of n compute nodes in one direction, with d parallel links from each node to the next.

    Direct-connect paper, Table 9: UniRing(d, m).

    Parameters
    ----------
    degree : int
        The paper's d.
    n : int
        The paper's m: nodes, at least 2.
    bandwidth : int, float, str or Fraction
        GB/s of each of the parallel links.
    latency : int, float, str or Fraction
        Microseconds of each link.

    Returns
    -------
    Topology

    Examples
    --------
    >>> unidirectional_ring(2, 4, bandwidth=25).link("gpu3", "gpu0").bandwidth
    Fraction(50, 1)
    """
    degree, n = as_size(degree, "degree"), as_size(n, "n", least=2)
    return cyclic_graph(n, [1] * degree, f"UniRing({degree}, {n})", bandwidth, latency)


def bidirectional_ring(degree: int, n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Ring of n compute nodes with d / 2 parallel links between neighbors, in each direction.

    Direct-connect paper, section F.1 and Table 9: BiRing(d, m).

    Parameters
    ----------
    degree : int
        The paper's d; even.
    n : int
        The paper's m: nodes, at least 3.
    bandwidth : int, float, str or Fraction
        GB/s of each of the parallel links, in each direction.
    latency : int, float, str or Fraction
        Microseconds of each link.

    Returns
    -------
    Topology

    Examples
    --------
    >>> bidirectional_ring(4, 8).graph
    <DirectGraph BiRing(4, 8): 8 nodes, 32 arcs>
    """
    degree, n = as_size(degree, "degree", least=2), as_size(n, "n", least=3)
    if degree % 2:
        raise TopologyError(
            f"degree is {degree}; expected an even number, as a bidirectional ring has equally many links in both "
            "directions"
        )
    return cyclic_graph(n, [1, -1] * (degree // 2), f"BiRing({degree}, {n})", bandwidth, latency)


def shifted_ring(n: int, *, stride: int | None = None, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Two bidirectional rings through the same compute nodes, one from i to i + 1, one from i to i + stride.

    A baseline of the direct-connect paper, section 8.2, after TopoOpt.  The paper does not print the stride; its
    all-to-all time for n = 1024, in the caption of Table 4, is that of stride 511.

    Parameters
    ----------
    n : int
        Nodes, at least 3; each has 4 ports.
    stride : int, optional
        From 1 to n - 1, without a divisor in common with n.  By default the largest such number below n / 2; for n of
        3, 4 or 6 that is 1, so that the second ring doubles the links of the first.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link, in each direction.

    Returns
    -------
    Topology

    Examples
    --------
    >>> [link.head for link in shifted_ring(8).out_links("gpu0")]
    ['gpu1', 'gpu3', 'gpu5', 'gpu7']
    """
    n = as_size(n, "n", least=3)
    if stride is None:
        stride = next(number for number in range((n - 1) // 2, 0, -1) if gcd(number, n) == 1)
        name = f"ShiftedRing({n})"
    else:
        stride = as_size(stride, "stride", most=n - 1)
        name = f"ShiftedRing({n}, stride {stride})"
    if gcd(stride, n) > 1:
        raise TopologyError(
            f"stride is {stride}; expected no divisor in common with n = {n}, so that the ring passes through all nodes"
        )
    return cyclic_graph(n, [1, -1, stride, -stride], name, bandwidth, latency)
