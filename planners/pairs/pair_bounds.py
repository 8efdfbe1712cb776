"""Bounds of all-to-alls from lengths of links, told by a cut where the lengths are those of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm

import numpy as np
import numpy.typing as npt

from ...errors import CertificateError
from ...schedules import Bound, Cut, LinkLengths, LinkPrice
from ...topologies import Topology

__all__ = ["lengths_bound"]

IntArray = npt.NDArray[np.int64]

MOST_CUTS = 64
"""Different ones that are looked at."""
MOST_UNITS = 2**52
"""All lengths together, in their common unit."""


def lengths_bound(topology: Topology, collective: str, traffic: IntArray, lengths: Sequence[Fraction]) -> Bound:
    """State what lengths of links prove, by a cut if one proves as much.

    Parameters
    ----------
    topology : Topology
        Whose links they are.
    collective : str
        ``"all_to_all"`` or ``"all_to_allv"``.
    traffic : ndarray of int64, shape (ranks, ranks)
        Whole numbers; all 1 for an all-to-all.
    lengths : sequence of Fraction
        One per link, none negative.

    Returns
    -------
    Bound
        Not verified.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> ones = np.ones((4, 4), dtype=np.int64)
    >>> lengths_bound(ring(4, bandwidth=25), "all_to_all", ones, [Fraction(1)] * 8).algbw
    Fraction(50, 1)
    """
    weights = () if collective == "all_to_all" else tuple(map(int, traffic.ravel().tolist()))
    priced = tuple(
        LinkPrice(link.tail, link.head, length)
        for link, length in zip(topology.links, _short(lengths), strict=True)
        if length
    )
    best = Bound.from_witness(topology, collective, LinkLengths(priced), weights)
    for cut in _cuts(topology, lengths):
        try:
            simple = Bound.from_witness(topology, collective, cut, weights)
        except CertificateError:
            continue  # no ranks on one side, or nothing to cross
        if simple.inverse_rate >= best.inverse_rate:
            return simple
    return best


def _short(lengths: Sequence[Fraction]) -> Sequence[Fraction]:
    """Round lengths that have no common unit of a fair size: any lengths prove something, and these nearly as much."""
    total, unit = sum(lengths), lcm(*(length.denominator for length in lengths))
    if total * unit < MOST_UNITS:
        return lengths
    return [Fraction(round(length * MOST_UNITS / total)) for length in lengths]


def _cuts(topology: Topology, lengths: Sequence[Fraction]) -> Iterator[Cut]:
    """Sets of nodes that only links with a length leave: if the lengths are those of a cut, it is among them."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    tails, heads, _, _ = topology.arrays
    free = np.array([length == 0 for length in lengths], dtype=np.bool_)
    size = len(topology.nodes)
    known: set[bytes] = set()
    for ends in ((tails, heads), (heads, tails)):
        graph = csr_array((np.ones(int(free.sum())), (ends[0][free], ends[1][free])), shape=(size, size))
        for rank in range(topology.num_ranks):
            inside = np.zeros(size, dtype=np.bool_)
            inside[breadth_first_order(graph, rank, return_predecessors=False)] = True
            # What can reach a rank for nothing is entered over links with a length, so the others are left over them.
            inside ^= ends[0] is heads
            if len(known) < MOST_CUTS and inside.tobytes() not in known:
                known.add(inside.tobytes())
                yield Cut(frozenset(topology.nodes[node] for node in np.flatnonzero(inside).tolist()))
