"""Bounds on the speed of a collective, each with a witness that anyone can add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ..errors import CertificateError
from ..topologies import Topology

__all__ = ["COLLECTIVES", "ENTERING", "Bound", "Cut", "RankCuts", "bus_factor"]

COLLECTIVES = ("allgather", "reduce_scatter", "allreduce", "broadcast", "reduce")
"""Collectives that trees can carry out."""

ENTERING = ("reduce_scatter", "reduce")
"""Collectives in which what ranks outside a cut hold must enter it, instead of the other way round."""


SINGLE_ROOT = ("broadcast", "reduce")
"""Collectives with one shard."""


@dataclass(frozen=True)
class Cut:
    """A set of nodes S with some rank inside and some rank outside.

    Attributes
    ----------
    nodes : frozenset of str
        Ranks and switches inside.
    """

    nodes: frozenset[str]

    def supply(self, topology: Topology, weights: Mapping[str, int] | None = None) -> int:
        """Shards of the ranks inside, ``|S ∩ Vc|``, or their weight."""
        inside = (node for node in topology.compute_nodes if node in self.nodes)
        return sum(1 if weights is None else weights[node] for node in inside)

    def bandwidth(self, topology: Topology) -> Fraction:
        """Bandwidth of the links that leave, GB/s: ``B+(S)``."""
        return sum(
            (link.bandwidth for link in topology.links if link.tail in self.nodes and link.head not in self.nodes),
            Fraction(0),
        )

    def entering_bandwidth(self, topology: Topology) -> Fraction:
        """Bandwidth of the links that enter, GB/s: ``B-(S)``."""
        return sum(
            (link.bandwidth for link in topology.links if link.tail not in self.nodes and link.head in self.nodes),
            Fraction(0),
        )

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless this is a cut of the topology."""
        if stranger := sorted(self.nodes - set(topology.nodes)):
            raise CertificateError(f"the bound's cut names {stranger[0]!r}, which is not a node of {topology!r}")
        inside = self.supply(topology)
        if not 0 < inside < topology.num_ranks:
            raise CertificateError(
                f"the bound's cut holds {inside} of {topology.num_ranks} ranks; expected some in and some out"
            )


@dataclass(frozen=True)
class RankCuts:
    """For every rank a cut that holds this rank alone: no rank can send faster than the widest of them.

    Attributes
    ----------
    cuts : tuple of Cut
        In rank order.
    """

    cuts: tuple[Cut, ...]

    def bandwidth(self, topology: Topology) -> Fraction:
        """Largest bandwidth over the cuts, GB/s."""
        return max(cut.bandwidth(topology) for cut in self.cuts)

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless there is a cut around every rank of the topology."""
        if len(self.cuts) != topology.num_ranks:
            raise CertificateError(f"the bound has {len(self.cuts)} cuts; expected one per rank, {topology.num_ranks}")
        for rank, cut in zip(topology.compute_nodes, self.cuts, strict=True):
            cut.check(topology)
            if rank not in cut.nodes or cut.supply(topology) != 1:
                raise CertificateError(f"the bound's cut for rank {rank!r} does not hold this rank alone")


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
        ``1 / x*`` of ForestColl section 4, in 1/(GB/s), which is ns per byte: with shards of m bytes per unit of
        weight, no schedule takes less than ``m * inverse_rate`` ns.
    witness : Cut or RankCuts
        What the figure follows from, see `verify`.
    weights : tuple of int
        Relative sizes of the shards in rank order, empty for equal ones.  Broadcast and reduce have one shard, that of
        the root.

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
    witness: Cut | RankCuts
    weights: tuple[int, ...] = ()

    @property
    def total_weight(self) -> int:
        """Sum of the weights of all shards: their number, if they are equal."""
        return sum(self.weights) if self.weights else self.topology.num_ranks

    @property
    def algbw(self) -> Fraction:
        """Largest algorithm bandwidth, GB/s as in nccl-tests: bytes in all over time, ``N x*`` for equal shards."""
        return self.total_weight / self.inverse_rate

    @property
    def busbw(self) -> Fraction:
        """Largest bus bandwidth, GB/s as in nccl-tests; see `bus_factor`."""
        return self.algbw * bus_factor(self.collective, self.topology.num_ranks)

    @property
    def trees_per_root(self) -> int:
        """Fewest trees per root with which every link carries a whole number of them at the bound.

        The k of ForestColl section 5.2: the denominator of ``1 / x*`` in lowest terms once bandwidths are counted in
        multiples of `LinkArrays.unit`.  A plan with fewer trees can still meet the bound if no rounding hurts its cut.
        """
        return (self.inverse_rate * self.topology.arrays.unit).denominator

    def verify(self) -> None:
        """Add up the witness; no solver and no flow is involved.

        *Allgather, broadcast*: the shards inside a cut that some rank is outside of must leave it, so ``1 / x`` is at
        least their weight over ``B+(S)`` (ForestColl section 4 (*); pipeline paper (5)).  *Reduce-scatter, reduce*: the
        same on the transposed network.  *Allreduce*: every byte must leave any cut (pipeline paper, Theorem 16); and
        some rank sends ``2 (N - 1) / N`` of all bytes (Theorem 17, Corollary 18), unless switches can add up data.

        Raises
        ------
        CertificateError
            If the witness is no cut of this topology or does not prove the figure claimed.
        """
        if self.collective not in COLLECTIVES:
            raise CertificateError(f"a cut says nothing about {self.collective!r}")
        if self.weights and (len(self.weights) != self.topology.num_ranks or min(self.weights) < 0):
            raise CertificateError("the bound's weights are not one number of at least 0 per rank")
        if self.collective in SINGLE_ROOT and sum(weight > 0 for weight in self.weights) != 1:
            raise CertificateError(
                f"{self.collective} has one shard, that of its root; the bound's weights say otherwise"
            )
        self.witness.check(self.topology)
        amount, bandwidth = self._crossing()
        if amount == 0 or bandwidth == 0 or amount / bandwidth != self.inverse_rate:
            raise CertificateError(
                f"the bound claims 1/x* = {self.inverse_rate}, but {amount} shards cross its cut over {bandwidth} GB/s"
            )

    def _crossing(self) -> tuple[Fraction, Fraction]:
        """How many units of data must cross the witness, and over which bandwidth."""
        ranks, total = self.topology.num_ranks, Fraction(self.total_weight)
        if isinstance(self.witness, RankCuts):
            if self.collective != "allreduce":
                raise CertificateError(f"cuts around single ranks say nothing about {self.collective!r}")
            if self.topology.aggregation:
                raise CertificateError("cuts around single ranks say nothing where switches can add up data")
            return 2 * total * (ranks - 1) / ranks, self.witness.bandwidth(self.topology)
        if self.collective == "allreduce":
            return total, self.witness.bandwidth(self.topology)
        weights = dict(zip(self.topology.compute_nodes, self.weights, strict=True)) if self.weights else None
        amount = Fraction(self.witness.supply(self.topology, weights))
        if self.collective in ENTERING:
            return amount, self.witness.entering_bandwidth(self.topology)
        return amount, self.witness.bandwidth(self.topology)

    def __str__(self) -> str:
        """One line."""
        return f"{self.collective}: at most {float(self.algbw):.2f} GB/s (1/x* = {self.inverse_rate})"


def bus_factor(collective: str, num_ranks: int) -> Fraction:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it."""
    share = Fraction(num_ranks - 1, num_ranks)
    return {"allgather": share, "reduce_scatter": share, "allreduce": 2 * share}.get(collective, Fraction(1))
