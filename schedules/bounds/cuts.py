"""Cuts and partitions as witnesses of bounds: the data that must cross them, over the bandwidth of their links."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np

from ...errors import CertificateError
from ...support.arrays import IntArray
from ...support.formatting import MAX_NAMES, abbreviated_names, count_text, exact, rate_text, set_text
from ...support.validation import shown
from ...topologies import Topology
from ..collective import ALLREDUCE, BROADCAST, REDUCE, AnyCollective, Collective, as_collective, crossing_traffic
from ..demands import Demands
from .item_cuts import leaving
from .witness import (
    WITHOUT_CODING,
    Argument,
    Crossing,
    Pair,
    Witness,
    WitnessView,
    as_node_set,
    as_parts,
    check_known,
    data_text,
)


@dataclass(frozen=True, repr=False)
class Cut(Witness):
    """A set S of `nodes`, ranks and switches, with some rank inside and some rank outside.

    *Allgather, broadcast*: the shards inside must leave it, so ``1 / x`` is at least their weight over ``B+(S)``
    (ForestColl section 4 (*); pipeline paper (5)).  *Reduce-scatter, reduce*: the same on the transposed network.
    *Allreduce*: every byte must leave it (pipeline paper, Theorem 16).  *All-to-all(v)*: the data of ranks inside for
    ranks outside must leave it.

    Examples
    --------
    >>> from collopt.topologies import ring
    >>> Cut(frozenset({"gpu0", "gpu1", "gpu2"})).crossing(ring(4, bandwidth=25), "allgather")
    Crossing(amount=Fraction(3, 1), bandwidth=Fraction(50, 1))
    """

    field: ClassVar[str] = "cut"

    nodes: frozenset[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", as_node_set(self.nodes, "cut"))

    def __repr__(self) -> str:
        """Number and names of the nodes, sorted."""
        return f"<Cut around {count_text(len(self.nodes), 'node')}: {set_text(self.nodes)}>"

    def supply(self, topology: Topology, weights: tuple[int, ...] = ()) -> int:
        """Shards of the ranks inside, ``|S ∩ Vc|``, or their weight."""
        index, ranks = topology.node_index, topology.num_ranks
        inside = [place for node in self.nodes if (place := index.get(node, ranks)) < ranks]
        return sum(weights[rank] for rank in inside) if weights else len(inside)

    def bandwidth(self, topology: Topology) -> Fraction:
        """Bandwidth of the links that leave, GB/s: ``B+(S)``."""
        return self._crossing_bandwidth(topology, entering=False)

    def entering_bandwidth(self, topology: Topology) -> Fraction:
        """Bandwidth of the links that enter, GB/s: ``B-(S)``."""
        return self._crossing_bandwidth(topology, entering=True)

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless this is a cut of the topology."""
        check_known(self.nodes, topology, "cut")
        inside = self.supply(topology)
        if not 0 < inside < topology.num_ranks:
            raise CertificateError(
                f"the bound's cut contains {inside} of {topology.num_ranks} ranks; expected ranks on both sides"
            )

    def crossing(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Add up shards and links, see `Witness.crossing`."""
        collective = as_collective(collective)
        if collective.has_two_phases:
            return Crossing(total_data(topology, weights), self.bandwidth(topology))
        if collective.in_pairs:
            inside = np.array([node in self.nodes for node in topology.compute_nodes])
            return Crossing(Fraction(crossing_traffic(inside, weights)), self.bandwidth(topology))
        if isinstance(collective, Demands):
            return Crossing(Fraction(leaving(collective, self.nodes)), self.bandwidth(topology))
        amount = Fraction(self.supply(topology, weights))
        if collective.direction == "reduce":
            return Crossing(amount, self.entering_bandwidth(topology))
        return Crossing(amount, self.bandwidth(topology))

    def reason(self, topology: Topology, collective: AnyCollective) -> str:
        """State the number of ranks inside, and the data that crosses."""
        collective = as_collective(collective)
        bandwidth = exact(self.crossing(topology, collective).bandwidth, "GB/s")
        side = "ingress" if collective.direction == "reduce" else "egress"
        part = f"{self.supply(topology)} of {topology.num_ranks}"
        if collective.in_pairs:
            return f"{side} of the cut around {part} ranks: {bandwidth}, carrying their traffic to the others"
        if collective.has_items:
            return f"{side} of the cut around {part} ranks: {bandwidth}, carrying the items that only they have"
        if not collective.is_sharded:
            what = "all data" if collective.has_two_phases else "the data of the root"
            return f"{side} of the cut around {part} ranks: {bandwidth}, carrying {what}"
        return f"{side} of the cut: {bandwidth}, carrying {part} shards"

    def link_weights(self, topology: Topology, collective: AnyCollective) -> dict[Pair, Fraction]:
        """Weight 1 for every link that leaves it, or enters it where that counts."""
        return self.crossed(topology, entering=as_collective(collective).direction == "reduce")

    def view(self, topology: Topology, collective: Collective) -> WitnessView:
        """Return the cut, and the links that cross it in the direction that counts."""
        return self.view_of_side(topology, entering=collective.direction == "reduce")

    def view_of_side(self, topology: Topology, *, entering: bool) -> WitnessView:
        """Return the cut and the links out of it, or into it."""
        crossed = frozenset(self.crossed(topology, entering=entering))
        return WitnessView((self.nodes,), crossed, f"link {'into' if entering else 'out of'} the cut")

    def rows(self, topology: Topology, collective: Collective) -> dict[str, str]:
        """Name the ranks and switches inside."""
        ranks, switches = (
            [node for node in nodes if node in self.nodes] for nodes in (topology.compute_nodes, topology.switch_nodes)
        )
        rows = {"bottleneck cut": self.reason(topology, collective), "ranks inside": abbreviated_names(ranks)}
        return rows | ({"switches inside": abbreviated_names(switches)} if switches else {})

    def argument(self, topology: Topology, collective: Collective, weights: tuple[int, ...], links: str) -> Argument:
        """Argue by the data that must cross the cut."""
        amount, bandwidth = self.crossing(topology, collective, weights)
        side = "ingress" if collective.direction == "reduce" else "egress"
        reasons = (
            self._sides_text(topology),
            _crossing_text(data_text(amount, topology, collective, weights), collective),
            f"The {side} of the cut is {rate_text(bandwidth)}, over {links}.",
        )
        return Argument("Bottleneck cut", reasons, f"{side} of the cut")

    def _sides_text(self, topology: Topology) -> str:
        """Describe the inside of the cut, or its outside if that is shorter."""
        sides = []
        for inside in (True, False):
            ranks = [node for node in topology.compute_nodes if (node in self.nodes) is inside]
            switches = [node for node in topology.switch_nodes if (node in self.nodes) is inside]
            names = ", and ".join(filter(None, (abbreviated_names(ranks), abbreviated_names(switches))))
            sides.append((ranks, switches, names))
        (ranks, switches, names), (outside, _, names_outside) = sides
        total = len(topology.switch_nodes)
        count = f"all {total}" if len(switches) == total else f"{len(switches)} of the {total}"
        named = f" and {abbreviated_names(switches)}" if switches else ""
        with_switches = f" and {count} switches" if total > 1 else named
        text = f"Take the cut around {len(ranks)} of the {topology.num_ranks} ranks{with_switches}"
        return f"{text}: all but {names_outside}." if len(outside) < len(ranks) else f"{text}: {names}."

    def crossed(self, topology: Topology, *, entering: bool) -> dict[Pair, Fraction]:
        """Weight 1 for every link that leaves, or enters."""
        nodes = [node for node in self.nodes if node in topology.node_index]
        places = topology.crossing_links(nodes, entering=entering).tolist()
        return {topology.link_at(place)[:2]: Fraction(1) for place in places}

    def to_json(self) -> list[str]:
        """Names of the nodes, sorted."""
        return sorted(self.nodes)

    @classmethod
    def from_json(cls, value: Iterable[str]) -> Self:
        """Build it from names of nodes."""
        return cls(frozenset(value))

    def _crossing_bandwidth(self, topology: Topology, *, entering: bool) -> Fraction:
        places = topology.crossing_links(self.nodes, entering=entering)
        kinds, counts = np.unique(topology.columns.kinds[places], return_counts=True)
        rates = (topology.columns.rates[kind][0] for kind in kinds.tolist())
        return sum((count * rate for count, rate in zip(counts.tolist(), rates, strict=True)), Fraction(0))


def _crossing_text(units: str, collective: Collective) -> str:
    """Describe the data that must cross a cut in any schedule."""
    if collective.has_two_phases:
        reason = "Ranks outside need sums to which ranks inside contribute"
        return f"{reason}, so the size of all data must leave the cut: {units}."
    if collective.in_pairs:
        return f"The traffic from ranks inside to ranks outside must leave the cut: {units}."
    if collective.has_items:
        return (
            f"Ranks outside need items that only ranks inside have, so these must leave the cut at least once: {units}."
        )
    if collective is BROADCAST:
        return "The root is inside and some ranks are outside, so all data of the root must leave the cut."
    if collective is REDUCE:
        reason = "The root is inside, so the contributions of ranks outside must enter the cut"
        return f"{reason}: at least the size of the result."
    if collective.reduces:
        reason = "Ranks outside contribute to the shards reduced inside"
        return f"{reason}, so the size of these must enter the cut: {units}."
    reason = "Every rank outside needs the shards of all ranks inside"
    return f"{reason}, so these must leave the cut at least once: {units}."


@dataclass(frozen=True)
class RankCuts(Witness):
    """The `cuts` hold, in rank order, each rank alone: no rank can send faster than the widest of them.

    *Allreduce*: some rank sends ``2 (N - 1) / N`` of all bytes (pipeline paper, Theorem 17, due to Patarasuk and Yuan,
    and Corollary 18), unless switches can reduce data.  Where switches can copy, one send can be received often; what
    counts then is that some rank receives as much (see `Partition`), and the links that enter the cuts.
    """

    field: ClassVar[str] = "rank_cuts"
    by_rank: ClassVar[tuple[str, ...]] = ("cuts",)

    cuts: tuple[Cut, ...]

    def __post_init__(self) -> None:
        cuts = as_parts(self.cuts, "list of cuts", "cuts, one per rank")
        if cut_list := [cut for cut in cuts if not isinstance(cut, Cut)]:
            raise CertificateError(f"the bound's list of cuts contains {shown(cut_list[0])}; expected a Cut per rank")
        object.__setattr__(self, "cuts", cuts)

    def bandwidth(self, topology: Topology) -> Fraction:
        """Largest bandwidth over the cuts, GB/s."""
        if topology.multicast:
            return max(cut.entering_bandwidth(topology) for cut in self.cuts)
        return max(cut.bandwidth(topology) for cut in self.cuts)

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless there is a cut around every rank of the topology."""
        if len(self.cuts) != topology.num_ranks:
            raise CertificateError(f"the bound has {len(self.cuts)} cuts; expected one per rank, {topology.num_ranks}")
        for rank, cut in zip(topology.compute_nodes, self.cuts, strict=True):
            cut.check(topology)
            if rank not in cut.nodes or cut.supply(topology) != 1:
                raise CertificateError(f"the bound's cut for rank {rank!r} does not contain this rank alone")

    def crossing(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Take the widest cut, see `Witness.crossing`."""
        if (collective := as_collective(collective)) is not ALLREDUCE:
            raise CertificateError(f"cuts around single ranks do not bound {collective.name!r}")
        if topology.aggregation:
            raise CertificateError(
                "cuts around single ranks do not bound an allreduce where switches can aggregate data"
            )
        ranks = topology.num_ranks
        return Crossing(2 * total_data(topology, weights) * (ranks - 1) / ranks, self.bandwidth(topology))

    def reason(self, topology: Topology, collective: AnyCollective) -> str:  # noqa: ARG002
        """State the data of the busiest rank, and its bandwidth."""
        way, side = ("receives", "ingress") if topology.multicast else ("sends", "egress")
        bandwidth = exact(self.bandwidth(topology), "GB/s")
        return f"some rank {way} 2 (N - 1) / N of all data; the largest {side} of a rank is {bandwidth}"

    def link_weights(self, topology: Topology, collective: AnyCollective) -> dict[Pair, Fraction]:  # noqa: ARG002
        """Weight 1 for every link that crosses one of the widest cuts."""
        weights: dict[Pair, Fraction] = {}
        widest = self.bandwidth(topology)
        for cut in self.cuts:
            crossed = cut.crossed(topology, entering=bool(topology.multicast))
            if sum(topology.link(*pair).bandwidth for pair in crossed) == widest:
                weights |= crossed
        return weights

    def _widest(self, topology: Topology) -> int:
        """Number of the first of the widest cuts."""
        entering = bool(topology.multicast)
        widths = [cut.entering_bandwidth(topology) if entering else cut.bandwidth(topology) for cut in self.cuts]
        return widths.index(max(widths))

    def view(self, topology: Topology, collective: Collective) -> WitnessView:  # noqa: ARG002
        """Return the widest cut: all others hold with room to spare, and one of equal ones is enough to look at."""
        return self.cuts[self._widest(topology)].view_of_side(topology, entering=bool(topology.multicast))

    def argument(
        self,
        topology: Topology,
        collective: Collective,
        weights: tuple[int, ...],
        links: str,  # noqa: ARG002
    ) -> Argument:
        """Argue by the data that the busiest rank sends, or receives where switches copy."""
        amount, bandwidth = self.crossing(topology, collective, weights)
        verb, side = ("receive", "ingress") if topology.multicast else ("send", "egress")
        rank = topology.compute_nodes[self._widest(topology)]
        lower_text = f"In an allreduce of N ranks some rank must {verb} 2 (N − 1) / N times all data"
        reasons = (
            f"For each of the {topology.num_ranks} ranks, take a cut that contains no other rank.",
            f"The largest {side} is that of {rank}, {rate_text(bandwidth)}, so no rank can {verb} faster.",
            f"{lower_text}: {data_text(amount, topology, collective, weights)}. {WITHOUT_CODING}",
        )
        return Argument("Cuts around single ranks", reasons, f"{side} of the widest cut")

    def to_json(self) -> list[list[str]]:
        """Names of the nodes of each cut."""
        return [cut.to_json() for cut in self.cuts]

    @classmethod
    def from_json(cls, value: Iterable[Iterable[str]]) -> Self:
        """Build it from names of nodes, cut by cut."""
        return cls(tuple(Cut.from_json(nodes) for nodes in value))


@dataclass(frozen=True, repr=False)
class Partition(Witness):
    """All nodes in parts, p of which hold ranks: these must receive ``2 (p - 1)`` times all data between them.

    *Allreduce*: ``algbw <= B / (2 (p - 1))`` with B the bandwidth of the links that enter a part with ranks from
    another part; ``docs/explanation/allreduce.md`` proves it, for algorithms that do not code several elements into
    one. On symmetric bidirectional links where every part holds ranks, the smallest such bound is the strength of the
    network (Tutte; Nash-Williams).  Single ranks as parts, each with its own switches, give the mean where `RankCuts`
    have the maximum.

    Attributes
    ----------
    parts : tuple of frozenset of str
        Every node is in exactly one.  A part of switches only counts for nothing, and none of its switches can reduce
        data.
    """

    field: ClassVar[str] = "partition"

    parts: tuple[frozenset[str], ...]

    def __post_init__(self) -> None:
        parts = as_parts(self.parts, "partition", "sets of nodes")
        object.__setattr__(self, "parts", tuple(as_node_set(part, "partition") for part in parts))

    def __repr__(self) -> str:
        """Number of parts, and the names of their nodes, sorted."""
        return f"<Partition into {len(self.parts)} parts: {'; '.join(map(set_text, self.parts))}>"

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless every node is in one part, and nothing adds up outside the parties."""
        visited: set[str] = set()
        for part in self.parts:
            check_known(part, topology, "partition")
            if twice := sorted(part & visited):
                raise CertificateError(f"the bound's partition has {twice[0]!r} in two parts; expected one")
            visited |= part
        if missing := [node for node in topology.nodes if node not in visited]:
            raise CertificateError(
                f"the bound's partition has no part with {missing[0]!r}; expected every node in a part"
            )
        parties = self._parties(topology)
        if len(parties) < 2:
            raise CertificateError(
                "one part of the bound's partition contains all ranks; expected ranks in at least two"
            )
        self._check_idle(topology, parties)

    def _check_idle(self, topology: Topology, parties: list[frozenset[str]]) -> None:
        """Refuse switches outside of the parts with ranks whose sums this would not count."""
        if idle := topology.aggregation.difference(*parties):
            raise CertificateError(
                f"the bound's partition has {min(idle)!r}, which can aggregate data, in a part without ranks"
            )

    def crossing(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Add up the links that enter parts with ranks, see `Witness.crossing`."""
        if (collective := as_collective(collective)) is not ALLREDUCE:
            raise CertificateError(f"a partition does not bound {collective.name!r}")
        party_of = self._numbered(topology)
        tails, heads, capacities, unit = topology.arrays
        crossed = (party_of[heads] >= 0) & (party_of[tails] != party_of[heads])
        amount = 2 * int(party_of.max()) * total_data(topology, weights)
        return Crossing(amount, int(capacities[crossed].sum()) * unit)

    def reason(self, topology: Topology, collective: AnyCollective) -> str:
        """State the number of parts, and their ingress."""
        bandwidth = exact(self.crossing(topology, collective).bandwidth, "GB/s")
        return f"ingress of p = {len(self._parties(topology))} parts: {bandwidth}, carrying 2 (p - 1) times all data"

    def link_weights(self, topology: Topology, collective: AnyCollective) -> dict[Pair, Fraction]:  # noqa: ARG002
        """Weight 1 for every link that enters a part with ranks."""
        weights: dict[Pair, Fraction] = {}
        for party in self._parties(topology):
            weights |= Cut(party).crossed(topology, entering=True)
        return weights

    def view(self, topology: Topology, collective: Collective) -> WitnessView:
        """Return the parts with ranks, and the links that count."""
        links = frozenset(self.link_weights(topology, collective))
        return WitnessView(tuple(self._parties(topology)), links, "link into a part")

    def rows(self, topology: Topology, collective: Collective) -> dict[str, str]:
        """Name the ranks of all parts."""
        return {"bottleneck": self.reason(topology, collective), "ranks in parts": self._ranks_text(topology)}

    def argument(self, topology: Topology, collective: Collective, weights: tuple[int, ...], links: str) -> Argument:
        """Argue by the data that parts with ranks have to receive."""
        amount, bandwidth = self.crossing(topology, collective, weights)
        parts = len(self._parties(topology))
        arrivals = "Each byte needs p − 1 arrivals at a part until one part has its sum, p − 1 more until all have it"
        units = data_text(amount, topology, collective, weights)
        reasons = (
            f"Partition the network; p = {parts} parts contain ranks: {self._ranks_text(topology)}.",
            f"{arrivals}: {2 * (parts - 1)} times all data, which is {units}. {WITHOUT_CODING}",
            f"The ingress of these parts is {rate_text(bandwidth)}, over {links}.",
        )
        return Argument("Partition of the network", reasons, "ingress of the parts with ranks")

    def _ranks_text(self, topology: Topology) -> str:
        """Names of the ranks of the first parts that have some."""
        names = [
            abbreviated_names(node for node in topology.compute_nodes if node in part)
            for part in self._parties(topology)
        ]
        hidden_count = f" | and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        return " | ".join(names[:MAX_NAMES]) + hidden_count

    def to_json(self) -> list[list[str]]:
        """Names of the nodes of each part, sorted."""
        return [sorted(part) for part in self.parts]

    @classmethod
    def from_json(cls, value: Iterable[Iterable[str]]) -> Self:
        """Build it from names of nodes, part by part."""
        return cls(tuple(frozenset(nodes) for nodes in value))

    def _parties(self, topology: Topology) -> list[frozenset[str]]:
        """Parts that hold ranks."""
        ranks = frozenset(topology.compute_nodes)
        return [part for part in self.parts if not ranks.isdisjoint(part)]

    def _numbered(self, topology: Topology) -> IntArray:
        """Number of the part with ranks that each node is in, -1 for none; shape (nodes,)."""
        numbers, index = np.full(len(topology.nodes), -1), topology.node_index
        parties = self._parties(topology)
        places = [index[node] for party in parties for node in party]
        numbers[places] = np.repeat(np.arange(len(parties)), [len(party) for party in parties])
        return numbers


def rank_cut(topology: Topology, collective: Collective, weights: tuple[int, ...] = ()) -> Cut:
    """Cut off one rank, that whose links take longest for what it needs of others, or they of it; for no pairs."""
    tails, heads, capacities, _ = topology.arrays
    widths = np.zeros(len(topology.nodes))
    np.add.at(widths, tails if collective.direction == "reduce" else heads, capacities)
    sizes = np.array(weights or (1,) * topology.num_ranks)
    needs = sizes.sum() - (0 if collective.has_two_phases else sizes)
    times, widths = np.zeros(len(sizes)), widths[: len(sizes)]
    # A root needs nothing, and may have no links for it.
    rank = int(np.divide(needs, widths, out=times, where=widths > 0).argmax())
    return Cut(frozenset(topology.nodes) - {topology.nodes[rank]})


def total_data(topology: Topology, weights: tuple[int, ...]) -> Fraction:
    """Units of data in all."""
    return Fraction(sum(weights) if weights else topology.num_ranks)
