"""Bounds on the speed of a collective, each with a witness that anyone can add up."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..errors import CertificateError
from ..topologies import Topology

__all__ = ["Bound", "Cut"]


@dataclass(frozen=True)
class Cut:
    """A set of nodes S that misses some rank; what the ranks inside hold must leave over the links that leave S.

    Attributes
    ----------
    nodes : frozenset of str
        Ranks and switches of the source side.
    """

    nodes: frozenset[str]

    def supply(self, topology: Topology) -> int:
        """Number of ranks inside: ``|S ∩ Vc|``, the shards that must leave."""
        return sum(node in self.nodes for node in topology.compute_nodes)

    def bandwidth(self, topology: Topology) -> Fraction:
        """Bandwidth of the links that leave, GB/s: ``B+(S)``."""
        return sum(
            (link.bandwidth for link in topology.links if link.tail in self.nodes and link.head not in self.nodes),
            Fraction(0),
        )


@dataclass(frozen=True)
class Bound:
    """No schedule of the collective is faster than this, and `witness` shows why.

    Attributes
    ----------
    topology : Topology
        The network that the bound is about.
    collective : str
        Such as ``"allgather"``.
    inverse_rate : Fraction
        ``1 / x*`` of ForestColl section 4, in 1/(GB/s), which is ns per byte: with shards of m bytes on every rank, no
        schedule takes less than ``m * inverse_rate`` ns.
    witness : Cut
        A cut whose ``|S ∩ Vc| / B+(S)`` is `inverse_rate`.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> bound = Bound(ring(4, bandwidth=25), "allgather", Fraction(3, 50), Cut(frozenset({"gpu0", "gpu1", "gpu2"})))
    >>> bound.verify()
    >>> bound.algbw, bound.trees_per_root
    (Fraction(200, 3), 2)
    """

    topology: Topology
    collective: str
    inverse_rate: Fraction
    witness: Cut

    @property
    def algbw(self) -> Fraction:
        """Largest algorithm bandwidth, GB/s as in nccl-tests: gathered bytes over time, ``N x*``."""
        return self.topology.num_ranks / self.inverse_rate

    @property
    def busbw(self) -> Fraction:
        """Largest bus bandwidth, GB/s as in nccl-tests: ``algbw (N - 1) / N``."""
        return (self.topology.num_ranks - 1) / self.inverse_rate

    @property
    def trees_per_root(self) -> int:
        """Fewest trees per root with which every link carries a whole number of them at the bound.

        The k of ForestColl section 5.2: the denominator of ``1 / x*`` in lowest terms once bandwidths are counted in
        multiples of `LinkArrays.unit`.  A plan with fewer trees can still meet the bound if no rounding hurts its cut.
        """
        return (self.inverse_rate * self.topology.arrays.unit).denominator

    def verify(self) -> None:
        """Add up the witness; no solver and no flow is involved.

        Raises
        ------
        CertificateError
            If the witness is no cut of this topology or does not have the ratio claimed.
        """
        if self.collective != "allgather":
            raise CertificateError(f"a cut of one shard per rank says nothing about {self.collective!r}")
        if stranger := sorted(self.witness.nodes - set(self.topology.nodes)):
            raise CertificateError(f"the bound's cut names {stranger[0]!r}, which is not a node of {self.topology!r}")
        supply, bandwidth = self.witness.supply(self.topology), self.witness.bandwidth(self.topology)
        if not 0 < supply < self.topology.num_ranks:
            raise CertificateError(
                f"the bound's cut holds {supply} of {self.topology.num_ranks} ranks; expected some in and some out"
            )
        if bandwidth == 0 or supply / bandwidth != self.inverse_rate:
            raise CertificateError(
                f"the bound claims 1/x* = {self.inverse_rate}, but {supply} shards leave its cut over {bandwidth} GB/s"
            )

    def __str__(self) -> str:
        """One line."""
        return f"{self.collective}: at most {float(self.algbw):.2f} GB/s (1/x* = {self.inverse_rate})"
