"""Circulant graphs and digraphs, which are Cayley graphs of cyclic groups; rings with parallel links; shifted rings."""

from collections.abc import Sequence
from itertools import pairwise
from math import gcd

from ...errors import TopologyError
from ...support.quantities import Exact
from ...support.validation import as_list, as_size, shown
from ..graphs.names import offset_names
from ..network.topology import Topology
from .arcs import check_graph, circulant_arcs, topology_from_arcs
from .circulant_search import low_diameter_offsets

MAX_DEGREE = 1022


def circulant(n: int, offsets: Sequence[int], *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Circulant graph: each node i of n is linked, both ways, with the nodes i ± a for the offsets a.

    Direct-connect paper, Definition 18.  The offset n / 2 is refused: it would be one link instead of two, and the
    degree odd.  Broadcasts breadth-first are bandwidth-optimal for two offsets; for three the paper's Conjecture 1
    says so of all circulants, but C(15, {1, 4, 5}) needs more.

    Parameters
    ----------
    n : int
        Nodes, at least 3.
    offsets : sequence of int
        Different, each from 1 to (n - 1) // 2; all of them and n share no divisor, so that the graph is connected.  The
        degree is twice their number.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link, in each direction.

    Examples
    --------
    >>> circulant(16, [3, 4]).graph, circulant(16, [3, 4]).graph.diameter
    (<DirectGraph C(16, {3, 4}): 16 nodes, 64 arcs>, 3)
    """
    n = as_size(n, "n", least=3)
    steps = _connecting([_as_offset(offset, n) for offset in as_list(offsets, "the offsets")], n)
    if twice := [one for one, other in pairwise(steps) if one == other]:
        raise TopologyError(f"offset {twice[0]} is given twice; expected different ones")
    name = f"C({n}, {offset_names(steps)})"
    return cyclic_graph(n, [sign * step for step in steps for sign in (1, -1)], name, bandwidth, latency)


def low_diameter_circulant(
    n: int, degree: int, *, tries: int = 400, bandwidth: Exact = 1, latency: Exact = 0
) -> Topology:
    """Circulant graph of low diameter: the minimum for degree 4, else the best of a search.

    Parameters as for `low_diameter_offsets`, which says what is proved and what is searched, and for `circulant`.
    """
    return circulant(n, low_diameter_offsets(n, degree, tries=tries), bandwidth=bandwidth, latency=latency)


def circulant_digraph(n: int, offsets: Sequence[int], *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Directed circulant graph: each node i of n has an arc to i + a, modulo n, for each of the offsets a.

    The Cayley digraph of the cyclic group: vertex-transitive, and renaming x to -x reverses all arcs.  It exists
    for every size and every degree below it.  With -a for each offset a it is a `circulant` graph, and the offset n / 2
    is allowed here: the opposite of such a link is one, too.

    Parameters as for `circulant`, but n is at least 2, and the offsets, as many as the degree, are from 1 to n - 1; one
    that is given several times makes parallel links.

    Examples
    --------
    The offsets 1, 2 and 4 reach all of 7 nodes in two hops, and each node just once:

    >>> septagon = circulant_digraph(7, [1, 2, 4]).graph
    >>> septagon, septagon.diameter
    (<DirectGraph DirCirc(7, {1, 2, 4}): 7 nodes, 21 arcs>, 2)
    """
    n = as_size(n, "n", least=2)
    what = f"an offset of the circulant digraph of {n} nodes"
    listed = as_list(offsets, "the offsets")
    steps = _connecting([as_size(offset, what, most=n - 1) for offset in listed], n)
    name = f"DirCirc({n}, {offset_names(steps)})"
    return cyclic_graph(n, steps, name, bandwidth, latency)


def directed_circulant(degree: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Directed circulant graph of d + 2 nodes: node i has arcs to i + 1, ..., i + d, to all but the one before it.

    Direct-connect paper, Table 9: Moore- and bandwidth-optimal in two steps.  This is `circulant_digraph` with the
    offsets 1 to d.  Parameters as there, with the degree, the paper's d, for n and the offsets.
    """
    degree = as_size(degree, "degree", most=MAX_DEGREE)
    return cyclic_graph(degree + 2, range(1, degree + 1), f"DirCirc({degree})", bandwidth, latency)


def _as_offset(value: object, n: int) -> int:
    if value == n / 2:
        raise TopologyError(
            f"offset {shown(value)} is half of n = {n}, one link where other offsets have two; "
            f"expected offsets below {n // 2}, so that the degree is even"
        )
    return as_size(value, f"an offset of the circulant graph of {n} nodes", most=(n - 1) // 2)


def _connecting(offsets: Sequence[int], n: int) -> list[int]:
    """Sort offsets; `TopologyError` if they do not connect all nodes."""
    steps = sorted(offsets)
    if not steps:
        raise TopologyError("there are no offsets; expected at least one, such as [1, 4]")
    common = gcd(n, *steps)
    if common > 1:
        raise TopologyError(
            f"the offsets {shown(steps)} and n = {n} have the common divisor {common}, so the graph would not be "
            "connected; expected no common divisor"
        )
    return steps


def cyclic_graph(n: int, steps: Sequence[int], name: str, bandwidth: Exact, latency: Exact) -> Topology:
    """Make the circulant digraph with arcs from i to i + a for each step a; equal steps make parallel links."""
    check_graph(name, n, len(steps))
    return topology_from_arcs(n, circulant_arcs(n, steps), name, bandwidth, latency)


def unidirectional_ring(degree: int, n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Ring of n compute nodes in one direction, with d parallel links from each node to the next.

    Direct-connect paper, Table 9: UniRing(d, m).

    Parameters
    ----------
    degree : int
        The paper's d.
    n : int
        The paper's m: nodes, at least 2.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each of the parallel links.
    """
    degree, n = as_size(degree, "degree"), as_size(n, "n", least=2)
    return cyclic_graph(n, [1] * degree, f"UniRing({degree}, {n})", bandwidth, latency)


def bidirectional_ring(degree: int, n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Ring of n compute nodes with d / 2 parallel links between neighbors, in each direction.

    Direct-connect paper, section F.1 and Table 9: BiRing(d, m).  Parameters as for `unidirectional_ring`, but the
    degree is even, and n at least 3.
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
