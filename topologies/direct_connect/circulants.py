"""Circulant and metacirculant graphs and digraphs, rings with parallel links, and searches for their offsets.

Circulants are Cayley graphs of cyclic groups, metacirculants of split metacyclic ones; few elements of these commute,
so that products of few generators are many elements, and digraphs come closer to the Moore bound.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, combinations, islice, pairwise
from math import comb, gcd
from typing import NamedTuple

import numpy as np

from ...errors import TopologyError
from ...support.arrays import IntArray
from ...support.quantities import Exact
from ...support.validation import as_list, as_size, shown
from ..network.direct_graph import DirectGraph
from ..network.topology import Topology
from .arcs import arcs_to, check_graph, circulant_arcs, offset_names, topology_from_arcs

MAX_TRIES = 10**7
SAMPLE_SIZE = 500


def low_diameter_offsets(n: int, degree: int, *, tries: int = 400) -> tuple[int, ...]:
    """Return offsets, in increasing order, for which the circulant graph of n nodes has a small diameter.

    For degree 4 the diameter is minimum: direct-connect paper, Theorem 22, for n > 6.  From degree 6 on, sets with the
    offset 1 are tried: all of them if there are at most `tries`, else a deterministic, even sample.  The first set of
    least diameter is returned.

    Parameters
    ----------
    n : int
        Nodes, at least degree + 1.
    degree : int
        Even, at least 2; there are degree / 2 offsets.
    tries : int
        Sets of offsets to try from degree 6 on.

    Examples
    --------
    >>> low_diameter_offsets(1024, 4), low_diameter_offsets(256, 6)
    ((23, 24), (1, 74, 79))
    """
    degree, n, tries = _as_degree(degree), as_size(n, "n", low=3), as_size(tries, "tries", high=MAX_TRIES)
    if n <= degree:
        raise TopologyError(
            f"n is {n}; expected at least {degree + 1} nodes, as many as differ from each other at degree {degree}"
        )
    bound = least_circulant_diameter(n, degree)
    if degree == 2:
        return (1,)
    if degree == 4:
        return (bound, bound + 1) if n > 6 else (1, 2)
    best: tuple[int, ...] = ()
    fewest = n
    for offsets in _offset_sets((n - 1) // 2, degree // 2, tries):
        if (hops := circulant_diameter(n, offsets, fewest)) is not None:
            best, fewest = offsets, hops
        if fewest == bound:
            break
    return best


def least_circulant_diameter(n: int, degree: int) -> int:
    """Return the least D for which k = degree / 2 offsets have at least n sums of D or fewer steps either way.

    They are the integer points of dimension k of l1 norm at most D, sum over i of 2**i binomial(k, i) binomial(D, i).
    """
    offsets, diameter = degree // 2, 0
    while sum(2**i * comb(offsets, i) * comb(diameter, i) for i in range(diameter + 1)) < n:
        diameter += 1
    return diameter


def circulant_diameter(n: int, offsets: Sequence[int], limit: int) -> int | None:
    """Return the diameter of a circulant graph, or None if it is disconnected or its diameter not below `limit`."""
    everything = (1 << n) - 1
    reached, steps = 1, 0
    while reached != everything:
        steps += 1
        if steps >= limit:
            return None
        rotated = reached
        for offset in offsets:
            rotated |= reached << offset | reached >> (n - offset) | reached >> offset | reached << (n - offset)
        rotated &= everything
        if rotated == reached:
            return None
        reached = rotated
    return steps


def _as_degree(degree: object) -> int:
    degree = as_size(degree, "degree", low=2, high=1022)
    if degree % 2:
        raise TopologyError(f"degree is {degree}; expected an even number, as every offset of a circulant is two links")
    return degree


def _offset_sets(largest: int, size: int, tries: int) -> Iterator[tuple[int, ...]]:
    """Yield sets of `size` offsets that contain 1: all if they are at most `tries`, else an even sample."""
    if comb(largest - 1, size - 1) <= tries:
        yield from ((1, *offsets) for offsets in combinations(range(2, largest + 1), size - 1))
        return
    for first in range(0, tries, SAMPLE_SIZE):
        sample = sampled_offset_sets(largest, size, range(first, min(first + SAMPLE_SIZE, tries)))
        yield from map(tuple, sample.tolist())


def digraph_offset_sets(n: int, degree: int, limit: int) -> IntArray:
    """List sets of offsets of circulant digraphs, int64 (sets, degree): geometric sequences, then `_subsets`.

    Of geometric sequences 1, h, h**2, ... modulo n, those with h**degree = 1 come first: multiplication by such an h is
    an automorphism that permutes the arcs of a node, so that collectives can load all arcs evenly.
    """
    return np.concatenate((_geometric(n, degree, n - 1), _subsets(n - 1, degree, limit)))


def bidirectional_offset_sets(n: int, degree: int, limit: int) -> IntArray:
    """List sets of offsets as `digraph_offset_sets`, with -a for each a, modulo n, so that links have opposite ones."""
    pairs, below = degree // 2, (n - 1) // 2
    if degree % 2 and n % 2:
        return np.empty((0, degree), dtype=np.int64)
    halves = np.concatenate((_geometric(n, pairs, below), _subsets(below, pairs, limit)))
    middle = np.full((len(halves), degree % 2), n // 2, dtype=np.int64)
    return np.concatenate((halves, n - halves, middle), axis=1)


def sampled_offset_sets(largest: int, size: int, numbers: range) -> IntArray:
    """Sample sets of numbers from 1 to `largest` with 1, evenly over all such sets; returns int64 (sets, size)."""
    # The additive recurrence of least discrepancy known in each dimension: powers of the root g of g**size = g + 1.
    root = 1.0
    for _ in range(64):
        root = (1 + root) ** (1 / size)
    steps = np.array([root**-axis for axis in range(1, size)])
    places = (0.5 + (np.array(numbers)[:, None] + 1) * steps) % 1 * (largest - 1)
    rows = np.ones((len(numbers), size), dtype=np.int64)
    rows[:, 1:] = 2 + places.astype(np.int64)
    rows.sort(axis=1)
    for row in np.flatnonzero((rows[:, 1:] == rows[:, :-1]).any(axis=1)):
        rows[row] = _completed({*rows[row].tolist()}, size, largest)
    return rows


def _completed(offsets: set[int], size: int, largest: int) -> list[int]:
    """Add the least missing numbers until there are `size`."""
    free = (number for number in range(2, largest + 1) if number not in offsets)
    return sorted(offsets | set(islice(free, size - len(offsets))))


def _subsets(largest: int, size: int, limit: int) -> IntArray:
    """Return all sets of numbers from 1 to `largest`, all with 1, or a sample: the first that has at most `limit`."""
    if comb(largest, size) <= limit:
        return _combinations(range(1, largest + 1), size)
    if comb(largest - 1, size - 1) <= limit:
        subsets = _combinations(range(2, largest + 1), size - 1)
        return np.concatenate((np.ones((len(subsets), 1), dtype=np.int64), subsets), axis=1)
    return sampled_offset_sets(largest, size, range(limit))


def _combinations(numbers: range, size: int) -> IntArray:
    flat = np.fromiter(chain.from_iterable(combinations(numbers, size)), dtype=np.int64)
    return flat.reshape(comb(len(numbers), size), size)


def _geometric(n: int, size: int, largest: int) -> IntArray:
    """Return geometric sequences 1, h, h**2, ... modulo n of distinct numbers, as absolute values up to `largest`."""
    ratios = np.arange(2, largest + 1)
    powers = np.ones((len(ratios), size + 1), dtype=np.int64)
    for place in range(1, size + 1):
        powers[:, place] = powers[:, place - 1] * ratios % n
    if largest < n - 1:
        powers = np.minimum(powers, n - powers)
    powers = powers[np.argsort(powers[:, -1] != 1, kind="stable"), :-1]
    powers.sort(axis=1)
    # An offset of 0 or n / 2 is not a pair of links.
    usable = (powers[:, 0] > 0) & (powers[:, -1] <= largest) & (powers[:, 1:] != powers[:, :-1]).all(axis=1)
    sequences: IntArray = powers[usable]
    return sequences


MAX_DEGREE = 1022


def circulant(n: int, offsets: Sequence[int], *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Circulant graph: each node i of n is linked, both ways, with the nodes i ± a for the offsets a.

    Direct-connect paper, Definition 18.  Broadcasts breadth-first are bandwidth-optimal for two offsets; for three the
    paper's Conjecture 1 says so of all circulants, but C(15, {1, 4, 5}) needs more.

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
    n = as_size(n, "n", low=3)
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

    The Cayley digraph of the cyclic group: vertex-transitive, and renaming x to -x reverses all arcs.
    Parameters as for `circulant`, but n is at least 2, and the offsets, as many as the degree, are from 1 to n - 1; one
    that is given several times makes parallel links.

    Examples
    --------
    The offsets 1, 2 and 4 reach all of 7 nodes in two hops, and each node just once:

    >>> circulant_digraph(7, [1, 2, 4]).graph.diameter
    2
    """
    n = as_size(n, "n", low=2)
    what = f"an offset of the circulant digraph of {n} nodes"
    listed = as_list(offsets, "the offsets")
    steps = _connecting([as_size(offset, what, high=n - 1) for offset in listed], n)
    name = f"DirCirc({n}, {offset_names(steps)})"
    return cyclic_graph(n, steps, name, bandwidth, latency)


def directed_circulant(degree: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Directed circulant graph of d + 2 nodes: node i has arcs to i + 1, ..., i + d, to all but the one before it.

    Direct-connect paper, Table 9: Moore- and bandwidth-optimal in two steps.  This is `circulant_digraph` with the
    offsets 1 to d.  Parameters as there, with the degree, the paper's d, for n and the offsets.
    """
    degree = as_size(degree, "degree", high=MAX_DEGREE)
    return cyclic_graph(degree + 2, range(1, degree + 1), f"DirCirc({degree})", bandwidth, latency)


def _as_offset(value: object, n: int) -> int:
    if value == n / 2:
        raise TopologyError(
            f"offset {shown(value)} is half of n = {n}, one link where other offsets have two; "
            f"expected offsets below {n // 2}, so that the degree is even"
        )
    return as_size(value, f"an offset of the circulant graph of {n} nodes", high=(n - 1) // 2)


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
    degree, n = as_size(degree, "degree"), as_size(n, "n", low=2)
    return cyclic_graph(n, [1] * degree, f"UniRing({degree}, {n})", bandwidth, latency)


def bidirectional_ring(degree: int, n: int, *, bandwidth: Exact = 1, latency: Exact = 0) -> Topology:
    """Ring of n compute nodes with d / 2 parallel links between neighbors, in each direction.

    Direct-connect paper, section F.1 and Table 9: BiRing(d, m).  Parameters as for `unidirectional_ring`, but the
    degree is even, and n at least 3.
    """
    degree, n = as_size(degree, "degree", low=2), as_size(n, "n", low=3)
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
        From 1 to n - 1, without a divisor in common with n.  By default the largest such number below n / 2.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link, in each direction.
    """
    n = as_size(n, "n", low=3)
    if stride is None:
        stride = next(number for number in range((n - 1) // 2, 0, -1) if gcd(number, n) == 1)
        name = f"ShiftedRing({n})"
    else:
        stride = as_size(stride, "stride", high=n - 1)
        name = f"ShiftedRing({n}, stride {stride})"
    if gcd(stride, n) > 1:
        raise TopologyError(
            f"stride is {stride}; expected no divisor in common with n = {n}, so that the ring passes through all nodes"
        )
    return cyclic_graph(n, [1, -1, stride, -stride], name, bandwidth, latency)


MAX_PART = 2**12  # elements of either cyclic part


class Group(NamedTuple):
    """A split metacyclic group; see `metacirculant_digraph`."""

    m: int
    k: int
    r: int

    @property
    def powers(self) -> IntArray:
        """Those of r modulo m, int64 (k,)."""
        return np.array([pow(self.r, exponent, self.m) for exponent in range(self.k)])

    def heads(self, elements: IntArray) -> IntArray:
        """Return the products of each element of the group and each of some, int64 (m * k, some)."""
        m, k, _ = self
        first, second = (part[:, None] for part in np.divmod(np.arange(m * k), k))
        products: IntArray = (first + self.powers[second] * (elements // k)) % m * k + (second + elements) % k
        return products

    def graph(self, elements: Sequence[int]) -> DirectGraph:
        """Make the graph of `metacirculant_digraph`, unchecked."""
        name = f"MetaCirc({self.m}, {self.k}, {self.r}; {offset_names(elements)})"
        return DirectGraph.from_arcs(self.m * self.k, arcs_to(self.heads(np.array(elements))), name)


def metacirculant_digraph(
    m: int, k: int, r: int, elements: Sequence[int], *, bandwidth: Exact = 1, latency: Exact = 0
) -> Topology:
    """Metacirculant digraph: each element g of a split metacyclic group has arcs to g s for the elements s.

    The group has m k elements, x^a y^b with number a k + b, where x^m = y^k = 1 and y x = x^r y.  Vertex-transitive, as
    every Cayley digraph.

    Parameters
    ----------
    m, k : int
        Orders of x and y, at least 2 each.
    r : int
        From 1 to m - 1, with r^k = 1 modulo m.  With 1 the group is commutative.
    elements : sequence of int
        Numbers of different elements, from 1 to m k - 1, as many as the degree; together they generate the group.
    bandwidth, latency : int, float, str or Fraction
        GB/s and µs of each link.

    Examples
    --------
    Of the dihedral group with 16 elements, four reach all others in two hops, which four of no cyclic group do:

    >>> metacirculant_digraph(8, 2, 7, [1, 2, 7, 12]).graph.diameter
    2
    """
    m, k = (as_size(part, f"{name} of the group", low=2, high=MAX_PART) for name, part in (("m", m), ("k", k)))
    r, count = as_size(r, "r of the group", high=m - 1), m * k
    if pow(r, k, m) != 1:
        raise TopologyError(f"r is {r}, and its power {k} is {pow(r, k, m)} modulo {m}; expected 1")
    listed = [as_size(element, "an element", high=count - 1) for element in as_list(elements, "the elements")]
    if not listed or len(set(listed)) < len(listed):
        raise TopologyError(f"the elements are {shown(listed)}; expected one or more, all different")
    group, name = Group(m, k, r), f"MetaCirc({m}, {k}, {r})"
    check_graph(name, count, len(listed))
    # The elements generate the group if products of them reach all of it from the identity.
    heads, reached, before = group.heads(np.array(listed)), np.arange(count) == 0, 0
    while (now := int(reached.sum())) > before:
        reached[heads[reached]], before = True, now
    if before < count:
        raise TopologyError(
            f"the elements {shown(listed)} generate {before} of {count} of {name}; add one of the others"
        )
    return Topology.from_graph(group.graph(listed), bandwidth=bandwidth, latency=latency)
