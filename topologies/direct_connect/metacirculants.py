"""Metacirculant digraphs: Cayley digraphs of split metacyclic groups.

The group has the elements x^a y^b, with x^m = y^k = 1 and y x = x^r y, where r^k = 1 modulo m; element number a k + b
is x^a y^b.  Few of them commute, so products of few generators are many different elements: the digraphs come closer to
the Moore bound than those of cyclic groups, the circulants, do.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...errors import TopologyError
from ...support.arrays import IntArray
from ...support.quantities import Exact
from ...support.validation import as_list, as_size, shown
from ..graphs.names import offset_names
from ..network.direct_graph import DirectGraph
from ..network.topology import Topology
from .arcs import arcs_to, check_graph

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
        found: IntArray = (first + self.powers[second] * (elements // k)) % m * k + (second + elements) % k
        return found

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
    m, k = (as_size(part, f"{name} of the group", least=2, most=MAX_PART) for name, part in (("m", m), ("k", k)))
    r, count = as_size(r, "r of the group", most=m - 1), m * k
    if pow(r, k, m) != 1:
        raise TopologyError(f"r is {r}, and its power {k} is {pow(r, k, m)} modulo {m}; expected 1")
    listed = [as_size(each, "an element", most=count - 1) for each in as_list(elements, "the elements")]
    if not listed or len(set(listed)) < len(listed):
        raise TopologyError(f"the elements are {shown(listed)}; expected one or more, all different")
    group, name = Group(m, k, r), f"MetaCirc({m}, {k}, {r})"
    check_graph(name, count, len(listed))
    heads, reached, before = group.heads(np.array(listed)), np.arange(count) == 0, 0
    while (now := int(reached.sum())) > before:
        reached[heads[reached]], before = True, now
    if before < count:
        raise TopologyError(
            f"the elements {shown(listed)} generate {before} of {count} of {name}; add one of the others"
        )
    return Topology.from_graph(group.graph(listed), bandwidth=bandwidth, latency=latency)
