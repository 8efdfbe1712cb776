"""`Bound`: a limit on the speed of a collective with a witness that anyone can check, and its JSON form."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import CertificateError, UnsupportedError
from ...support.formatting import bandwidth_text
from ...support.packages import Viewed
from ...support.validation import as_kind, shown
from ...topologies import Topology
from ..collective import COLLECTIVES, DEMANDS, AnyCollective, Collective, as_collective, collective_or_given
from ..demands import Demands
from .cuts import Cut, Partition, RankCuts
from .item_cuts import ItemCuts
from .length_duals import CutDual, LengthDual
from .tree_witnesses import LoopbackPartition, TreeDual, TreePartition
from .witness import EVERY_SCHEDULE, LinkValue, Witness

if TYPE_CHECKING:
    import pandas as pd

WITNESS_KINDS: dict[str, type[Witness]] = {
    kind.field: kind
    for kind in (Cut, RankCuts, Partition, LoopbackPartition, TreePartition, CutDual, LengthDual, TreeDual, ItemCuts)
}
"""By the name of their field in plan files."""


@dataclass(frozen=True)
class Bound(Viewed):
    """No schedule of the collective within `scope` is faster than this, and `witness` shows why.

    Attributes
    ----------
    topology : Topology
        The network that the bound is about.
    collective : Collective
        Such as `ALLGATHER`, or its name.
    inverse_rate : Fraction
        ``1 / x*`` of ForestColl section 4, in 1/(GB/s), which is ns per byte: with shards of m bytes per unit of
        weight, no schedule takes less than ``m * inverse_rate`` ns.
    witness : Witness
        Proof of the figure, such as a `Cut`, `RankCuts` or a `Partition`.
    weights : tuple of int
        Relative sizes of the shards in rank order, empty for equal ones.  Broadcast and reduce have one shard, that of
        the root.  An all-to-allv has one for each pair, row by row of its traffic, as have collectives with their own.

    Examples
    --------
    >>> from collopt.schedules import Cut
    >>> from collopt.topologies import ring
    >>> bound = Bound(ring(4, bandwidth=25), "allgather", Fraction(3, 50), Cut(frozenset({"gpu0", "gpu1", "gpu2"})))
    >>> bound.verify()
    >>> bound.algbw, bound.trees_per_root
    (Fraction(200, 3), 2)
    """

    topology: Topology
    collective: Collective
    inverse_rate: Fraction
    witness: Witness
    weights: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "collective", collective_or_given(self.collective))

    @property
    def total_weight(self) -> Fraction:
        """Sum of the weights of all shards, their number if they are equal; of pairs, the data of a rank on average."""
        ranks = self.topology.num_ranks
        if isinstance(self.collective, Demands):
            return Fraction(self.collective.total_weight)
        if not self.weights:
            return Fraction(ranks)
        return Fraction(sum(self.weights), ranks if self.collective.in_pairs else 1)

    @property
    def algbw(self) -> Fraction:
        """Largest algorithm bandwidth, GB/s as in nccl-tests: bytes in all over time, ``N x*`` for equal shards."""
        return self.total_weight / self.inverse_rate

    @property
    def busbw(self) -> Fraction:
        """Largest bus bandwidth, GB/s as in nccl-tests; see `Collective.bus_factor`."""
        ranks = self.topology.num_ranks
        return self.algbw * self.collective.bus_factor(ranks, _own_root(self.collective, self.weights, ranks))

    @property
    def trees_per_root(self) -> int:
        """Fewest trees per root with which every link carries a whole number of them at the bound.

        The k of ForestColl section 5.2: the denominator of ``1 / x*`` in lowest terms once bandwidths are counted in
        multiples of `LinkArrays.unit`.  A plan with fewer trees can still meet the bound if no rounding hurts its cut.
        """
        return (self.inverse_rate * self.topology.arrays.unit).denominator

    @property
    def scope(self) -> str:
        """Which schedules the bound is about; all of them, with most witnesses."""
        return self.witness.scope(self.collective)

    @classmethod
    def from_witness(
        cls, topology: Topology, collective: AnyCollective, witness: Witness, weights: tuple[int, ...] = ()
    ) -> Bound:
        """State the bound that a witness proves; parameters as the attributes.

        Raises `CertificateError` if the witness does not fit the topology, or says nothing about the collective of
        these shards.
        """
        record = collective_or_given(collective)
        _check_request(topology, record, weights)
        _check_witness(witness)
        amount, bandwidth = witness.verify(topology, record, weights)
        if amount <= 0 or bandwidth == 0:
            raise CertificateError(f"the witness shows {amount} shards over {bandwidth} GB/s, which is no bound")
        return cls(topology, record, amount / bandwidth, witness, weights)

    def verify(self) -> None:
        """Check the witness without solvers and flows; raises `CertificateError` unless it proves the claim."""
        _check_request(self.topology, self.collective, self.weights)
        _check_witness(self.witness)
        if type(self.inverse_rate) is not Fraction:
            raise CertificateError(f"the bound claims 1/x* = {shown(self.inverse_rate)}; expected an exact Fraction")
        amount, bandwidth = self.witness.verify(self.topology, self.collective, self.weights)
        if amount <= 0 or bandwidth == 0 or amount / bandwidth != self.inverse_rate:
            raise CertificateError(
                f"the bound claims 1/x* = {self.inverse_rate}, "
                f"but its witness shows {amount} shards over {bandwidth} GB/s"
            )

    def sensitivity(self) -> pd.DataFrame:
        """Tabulate `collopt.schedules.link_values`, the links that the bound depends on.

        One row per link, dearest first: ``tail``, ``head``, ``bandwidth`` in GB/s and ``dual``, both exact.
        """
        import pandas as pd

        duals = {(tail, head): dual for tail, head, dual in link_values(self)}
        rows = [(*link[:3], duals.get(link[:2], Fraction(0))) for link in self.topology.links]
        rows.sort(key=lambda row: row[3], reverse=True)
        return pd.DataFrame(rows, columns=["tail", "head", "bandwidth", "dual"])

    def __str__(self) -> str:
        about = "" if self.scope == EVERY_SCHEDULE else f" for {self.scope}"
        return f"{self.collective}: at most {bandwidth_text(self.algbw, 2)}{about} (1/x* = {self.inverse_rate})"

    def __repr__(self) -> str:
        return f"<Bound {self} on {self.topology.name}>"


def link_values(bound: Bound) -> tuple[LinkValue, ...]:
    """Say by how much the bound rises with the bandwidth of each link.

    Values are GB/s of algorithm bandwidth per GB/s of the link, for links that matter to the witness.

    Notes
    -----
    With every witness ``algbw = W sum of y b / amount``, W all data and y the weight that the witness gives to a link.
    The witness stays valid when b changes, so no wider link gains more than its dual value times the increase; it
    gains less where another witness takes over.  `collopt.sensitivity` solves again to find out.

    Examples
    --------
    >>> from collopt.schedules import Cut
    >>> from collopt.topologies import ring
    >>> bound = Bound.from_witness(ring(4, bandwidth=25), "allgather", Cut(frozenset({"gpu0", "gpu1", "gpu2"})))
    >>> link_values(bound)[0]
    LinkValue(tail='gpu2', head='gpu3', dual=Fraction(4, 3))
    """
    as_kind(bound, Bound, "the bound", hint=", such as collopt.bound returns")
    topology, witness, collective = bound.topology, bound.witness, bound.collective
    if not isinstance(witness, Witness):
        raise UnsupportedError(f"a bound by {type(witness).__name__} has no dual values of links")
    weights = witness.link_weights(topology, collective)
    amount, _ = witness.crossing(topology, collective, bound.weights)
    return tuple(LinkValue(*pair, weight * bound.total_weight / amount) for pair, weight in weights.items() if weight)


def witness_to_json(witness: Witness) -> dict[str, Any]:
    """Describe a witness by one field of plain values, ready for `json.dumps`; see ``docs/reference/plan-json.md``."""
    if not isinstance(witness, Witness):
        raise UnsupportedError(
            f"there is no form for a {type(witness).__name__} in files; expected one of {', '.join(WITNESS_KINDS)}"
        )
    return {witness.field: witness.to_json()}


def witness_from_json(field: str, value: Any) -> Witness:
    """Build the witness that a field describes."""
    return WITNESS_KINDS[field].from_json(value)


def _own_root(collective: Collective, weights: tuple[int, ...], ranks: int) -> int | None:
    """Return the root of the traffic of a collective that has traffic of its own, if there is one."""
    if collective.traffic is None:
        return None
    return collective.root_of(np.reshape(weights or (1,) * ranks**2, (ranks, ranks)), error=CertificateError)


def _check_witness(witness: object) -> None:
    if not isinstance(witness, Witness):
        raise CertificateError(f"the bound's witness is {shown(witness)}; expected a witness such as a Cut")


def _check_request(topology: object, collective: object, weights: object) -> None:
    if not isinstance(topology, Topology):
        raise CertificateError(f"the bound is about {shown(topology)}; expected a Topology")
    if not isinstance(collective, Collective):
        raise CertificateError(f"there is no bound for {shown(collective)}; expected one of {', '.join(COLLECTIVES)}")
    as_collective(collective, (*COLLECTIVES.values(), DEMANDS), "there is no bound for", error=CertificateError)
    # Weights of numpy would overflow when they are added up, and floats round.
    if not isinstance(weights, tuple) or any(type(weight) is not int for weight in weights):
        raise CertificateError(f"the bound's weights are {shown(weights)}; expected a tuple of integers")
    if collective.takes_traffic and not weights:
        raise CertificateError("the bound of an all_to_allv has no weights; expected its traffic")
    if weights and collective.has_two_phases:
        raise CertificateError(
            f"the bound of an {collective} has weights {shown(list(weights))}; expected none, since every rank has and "
            "gets all data: leave them empty"
        )
    if weights and collective.has_items:
        raise CertificateError("the bound of demands has weights; expected none, since its items have sizes")
    pairs, ranks = collective.in_pairs, topology.num_ranks
    shards = ranks**2 if pairs else ranks
    if weights and (len(weights) != shards or min(weights) < 0):
        what = "pair of ranks" if pairs else "rank"
        raise CertificateError(f"the bound's weights are not one non-negative number per {what}")
    if collective.traffic is not None:
        _own_root(collective, weights, ranks)
    elif weights and pairs and not collective.takes_traffic:
        raise CertificateError("the bound of an all_to_all has weights; expected none, since all parts are equal")
    elif collective.has_one_root and sum(weight > 0 for weight in weights) != 1:
        raise CertificateError(f"the bound of a {collective} has weights for several ranks; expected one, the root")
