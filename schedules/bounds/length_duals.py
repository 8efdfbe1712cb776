"""Length duals of a multicommodity flow as a witness, checked with shortest paths in whole numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import ClassVar

import numpy as np

from ...errors import CertificateError
from ...support.arrays import FloatArray
from ...topologies import Topology
from ..traffic.collective import AnyCollective, as_collective
from ..traffic.sizes import traffic_matrix
from .witness import Crossing, LinkDuals, value_by_link

EXACT_FLOATS = 2**53  # floats up to here are whole numbers that add up exactly


@dataclass(frozen=True)
class LengthDual(LinkDuals):
    """Length duals of links: data that goes from one rank to another takes at least their distance from the network.

    *All-to-all(v)*: let T be the traffic and f the rate that a traffic of 1 gets.  What goes from s to t at the rate f
    T(s, t) passes links whose lengths sum to ``dist(s, t)`` or more, out of the sum of bandwidth times length that all
    links have: ``1 / f`` is at least ``sum of T(s, t) dist(s, t)`` over ``sum of b(e) length(e)``.  This is weak
    duality for linear program (3) of the direct-connect paper (appendix A.5), which the best lengths meet; equal
    lengths give the paper's bound by the sum of distances.

    Attributes
    ----------
    links : tuple of LinkValue
        Length of each link, in any unit; those that are not there have length 0.

    Examples
    --------
    On a one-way ring of three, each pair is one or two hops apart:

    >>> from collopt.schedules import LinkValue
    >>> from collopt.topologies import ring
    >>> network = ring(3, bandwidth=10, bidirectional=False)
    >>> lengths = LengthDual(tuple(LinkValue(link.tail, link.head, Fraction(1)) for link in network.links))
    >>> lengths.crossing(network, "all_to_all")
    Crossing(amount=Fraction(9, 1), bandwidth=Fraction(30, 1))
    """

    field: ClassVar[str] = "lengths"

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless the lengths fit the topology and none is negative."""
        value_by_link(self.links, {(link.tail, link.head) for link in topology.links}, "link")

    def crossing(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Add up distances, and what all links have to give away; see `Witness.crossing`."""
        if not (collective := as_collective(collective)).in_pairs:
            raise CertificateError(f"dual lengths of links do not bound {collective.name!r}")
        scale = lcm(*(length.denominator for _, _, length in self.links))
        amount = 0
        traffic = traffic_matrix(weights, topology.num_ranks)
        for source, distances in enumerate(self._distances(topology, scale)):
            wanted = np.flatnonzero(traffic[source] != 0)
            if not np.isfinite(distances[wanted]).all():
                raise CertificateError(f"rank {topology.compute_nodes[source]!r} cannot reach all that it sends to")
            whole = distances[wanted].astype(np.int64).astype(object)
            amount += int((whole * traffic[source, wanted]).sum())
        return Crossing(Fraction(amount, scale), self.value(topology))

    def reason(self, topology: Topology, collective: AnyCollective) -> str:  # noqa: ARG002
        """Say what the bound compares."""
        return f"dual lengths of {len(self.links)} links: traffic times distance is at most bandwidth times length"

    def _distances(self, topology: Topology, scale: int) -> Iterator[FloatArray]:
        """Distances of all ranks from each rank, whole numbers in units of ``1 / scale``."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        tails, heads, _, _ = topology.arrays
        lengths = np.zeros(len(tails), dtype=np.int64)
        places = {(link.tail, link.head): place for place, link in enumerate(topology.links)}
        whole = {places[tail, head]: int(length * scale) for tail, head, length in self.links}
        # No path passes a node twice, so no distance is more than all lengths together.
        if sum(whole.values()) >= EXACT_FLOATS:
            raise CertificateError("the bound's dual lengths sum to 2^53 or more of their common unit")
        lengths[list(whole)] = list(whole.values())
        size = len(topology.nodes)
        # Stored zeros are links of length 0, not missing ones.
        graph = csr_array((lengths.astype(np.float64), (tails, heads)), shape=(size, size))
        for source in range(topology.num_ranks):
            yield dijkstra(graph, indices=source)[: topology.num_ranks]
