"""Dual values as lengths of links: witnesses of throughput programs and of flows, checked by exact shortest paths."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from math import lcm
from typing import Any, ClassVar, Self

import numpy as np

from ...errors import CertificateError
from ...support.arrays import FloatArray
from ...support.validation import shown
from ...topologies import Topology
from ..collective import AnyCollective, Collective, Direction, as_collective, traffic_matrix
from .witness import (
    EVERY_SCHEDULE,
    Crossing,
    LinkDuals,
    LinkValue,
    Pair,
    RootedDuals,
    as_link_values,
    as_node_set,
    as_parts,
    value_by_link,
    value_rows,
    values_from_rows,
)

Adjacency = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class CutDual(RootedDuals):
    """Dual values of links, and for every rank their division over the data that it must receive and send.

    Data goes in hops between ranks, past switches that can only pass it on; switches that can copy or reduce are
    *relays*, which count like ranks without data.  A hop that carries data for rank t carries nothing else for t at
    that time, so with dual values z(t) of hops that data uses bandwidth worth ``sum of w(v) dist(v, t)`` per unit of
    rate. Over all ranks z(t) of a hop sums to no more than its cheapest way past switches at link dual values y, and
    all links together are worth ``sum of b y``: ``1 / x`` is at least ``sum of w(v) dist(v, t)`` over ``sum of b y``.

    *Reduce-scatter, reduce*: the same with contributions of t to the sum at v.  *Allreduce*: every byte is reduced at
    some rank and broadcast from there, at best at the cheapest; algorithms that do otherwise, such as recursive
    doubling of whole buffers, are out of scope.  This is weak duality for the programs of `collopt.formulations`
    (ForestColl, appendix E.1, Theorem 1; LP (5)).

    Attributes
    ----------
    links : tuple of LinkValue
        y; links without a dual value are free.
    into, out_of : tuple of tuple of LinkValue
        For every rank in rank order: dual values z of hops for its incoming data, empty for reduce-scatter and reduce;
        dual values z' for the data it sends, empty for allgather and broadcast.
    relays : frozenset of str
        Switches at which hops end; all that can copy or reduce are among them.
    """

    field: ClassVar[str] = "prices"
    by_rank: ClassVar[tuple[str, ...]] = ("into", "out_of")

    into: tuple[tuple[LinkValue, ...], ...] = ()
    out_of: tuple[tuple[LinkValue, ...], ...] = ()
    relays: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("into", "out_of"):
            lists = as_parts(getattr(self, name), f"dual values {name}", "lists of dual values, one per rank")
            object.__setattr__(self, name, tuple(as_link_values(duals) for duals in lists))
        object.__setattr__(self, "relays", as_node_set(self.relays, "relays"))

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless the dual values fit the topology, and hops cost no more than their links."""
        self._check_relays(topology)
        links = value_by_link(self.links, {(link.tail, link.head) for link in topology.links}, "link")
        limits = hop_limits(topology, links, self.relays)
        for lengths in (self.into, self.out_of):
            if lengths and len(lengths) != topology.num_ranks:
                raise CertificateError(
                    f"the bound has dual values for {len(lengths)} ranks; expected one list per rank, "
                    f"{topology.num_ranks}"
                )
            sums = dict.fromkeys(limits, Fraction(0))
            for duals in lengths:
                for pair, dual in value_by_link(duals, sums.keys(), "hop").items():
                    sums[pair] += dual
            if dear := [pair for pair, dual in sums.items() if dual > limits[pair]]:
                raise CertificateError(
                    f"the bound's dual values of hop {dear[0]} sum to {sums[dear[0]]}; expected at most that of its "
                    f"links, {limits[dear[0]]}"
                )

    def uses(self, topology: Topology, direction: Direction) -> list[Fraction | None]:
        """Add up shortest paths: ``dist(v, t)`` over all t, or for data reduced at v ``dist'(t, v)``."""
        duals = self.into if direction == "broadcast" else self.out_of
        if not duals:
            what = "receive" if direction == "broadcast" else "send"
            raise CertificateError(f"the bound has no dual values for what ranks {what}")
        direct = _hops(topology, self.relays)
        if direction == "reduce":
            return _sums_of_distances(topology, direct, duals)
        backward: dict[str, list[str]] = {}
        for tail, heads in direct.items():
            for head in heads:
                backward.setdefault(head, []).append(tail)
        turned = [tuple(LinkValue(head, tail, dual) for tail, head, dual in own) for own in duals]
        return _sums_of_distances(topology, backward, turned)

    def scope(self, collective: AnyCollective) -> str:
        """Say which schedules the bound is about."""
        if as_collective(collective).has_two_phases:
            return "allreduces that reduce every byte at one rank and broadcast it from there"
        return EVERY_SCHEDULE

    def dual_reasons(self, links: str, amount: str, collective: Collective) -> tuple[str, ...]:
        """Name the linear program, and the limit of the dual values of ranks."""
        assigned = f"Assign the dual values below to the bandwidth of {links}, and 0 to all others."
        hops = "Data travels in hops between ranks; the dual values of all ranks for one hop sum to at most"
        return (
            f"{assigned} They come from a linear program, and were verified without it.",
            f"{hops} those of the links on its cheapest path.",
            f"Weighted by dual values, {self.scope(collective)} use bandwidth of {amount} per unit of rate.",
        )

    def to_json(self) -> dict[str, Any]:
        """Rows of both ends and a dual value, and names of the relays, sorted."""
        return {
            "links": value_rows(self.links),
            "into": [value_rows(row) for row in self.into],
            "out_of": [value_rows(row) for row in self.out_of],
            "relays": sorted(self.relays),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Build them from such rows and names."""
        into, out_of = (tuple(map(values_from_rows, value[name])) for name in ("into", "out_of"))
        return cls(values_from_rows(value["links"]), into, out_of, frozenset(value["relays"]))

    def _check_relays(self, topology: Topology) -> None:
        if unknown := sorted(self.relays - set(topology.switch_nodes)):
            raise CertificateError(f"the bound's relay {shown(unknown[0])} is not a switch of {topology}")
        if left_out := sorted((topology.multicast | topology.aggregation) - self.relays):
            raise CertificateError(
                f"the bound leaves out of its relays {left_out[0]!r}, which can copy or aggregate data"
            )


def hop_limits(topology: Topology, links: Mapping[Pair, Fraction], relays: frozenset[str]) -> dict[Pair, Fraction]:
    """Value the cheapest way past switches for every hop: as much as the duals of the hop may add up to."""
    ends = {*topology.compute_nodes, *relays}
    lengths = _Lengths(links)
    direct = {node: [link.head for link in topology.out_links(node)] for node in topology.nodes}
    limits: dict[Pair, Fraction] = {}
    for start in ends:
        limits_of_hops = lengths.distances(direct, start, ends)
        limits |= {
            (start, end): lengths.fraction(length) for end, length in limits_of_hops.items() if end in ends - {start}
        }
    return limits


class _Lengths:
    """Dual values as whole numbers of one unit, for shortest paths."""

    def __init__(self, duals: Mapping[Pair, Fraction]) -> None:
        self._scale = lcm(*(dual.denominator for dual in duals.values()))
        self._lengths = {pair: int(dual * self._scale) for pair, dual in duals.items()}

    def fraction(self, length: int) -> Fraction:
        """Undo the scaling."""
        return Fraction(length, self._scale)

    def distances(self, direct: Adjacency, start: str, ends: Iterable[str] = ()) -> dict[str, int]:
        """Lengths of shortest paths to all nodes in reach, by Dijkstra's algorithm; none goes on past `ends`."""
        final: dict[str, int] = {}
        stops = set(ends) - {start}
        waiting = [(0, start)]
        while waiting:
            length, node = heappop(waiting)
            if node in final:
                continue
            final[node] = length
            if node not in stops:
                for head in direct.get(node, ()):
                    if head not in final:
                        heappush(waiting, (length + self._lengths.get((node, head), 0), head))
        return final


def _hops(topology: Topology, relays: frozenset[str]) -> dict[str, list[str]]:
    """Where one hop leads from every rank and relay."""
    hops: dict[str, list[str]] = {}
    for tail, head in hop_limits(topology, {}, relays):
        hops.setdefault(tail, []).append(head)
    return hops


def _sums_of_distances(
    topology: Topology, direct: Adjacency, duals: Sequence[Sequence[LinkValue]]
) -> list[Fraction | None]:
    """For every rank v, add up over all ranks t the distance from t to v at the duals of t; None if one is infinite."""
    sums: dict[str, Fraction | None] = dict.fromkeys(topology.compute_nodes, Fraction(0))
    for rank, own in zip(topology.compute_nodes, duals, strict=True):
        lengths = _Lengths({(tail, head): dual for tail, head, dual in own})
        distances = lengths.distances(direct, rank)
        for other, so_far in sums.items():
            if so_far is not None:
                sums[other] = so_far + lengths.fraction(distances[other]) if other in distances else None
    return list(sums.values())


EXACT_FLOATS = 2**53  # floats up to here are whole numbers that add up exactly


@dataclass(frozen=True)
class LengthDual(LinkDuals):
    """Length duals of links: data that goes from one rank to another takes at least their distance from the network.

    *All-to-all(v)* with traffic T: ``1 / f``, f the rate that a traffic of 1 gets, is at least ``sum of T(s, t) dist(s,
    t)`` over ``sum of b(e) length(e)``.  This is weak duality for linear program (3) of the direct-connect paper
    (appendix A.5), which the best lengths meet; equal lengths give the paper's bound by the sum of distances.

    Attributes
    ----------
    links : tuple of LinkValue
        Length of each link, in any unit; those that are not there have length 0.
    """

    dual_name: ClassVar[str] = "length"
    field: ClassVar[str] = "lengths"

    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless the lengths fit the topology and none is negative."""
        value_by_link(self.links, {(link.tail, link.head) for link in topology.links}, "link")

    def crossing(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Add up distances, and the worth of all links; see `Witness.crossing`."""
        if not (collective := as_collective(collective)).in_pairs:
            raise CertificateError(f"dual lengths of links do not bound {collective.name!r}")
        scale = lcm(*(length.denominator for _, _, length in self.links))
        amount = 0
        traffic = traffic_matrix(weights, topology.num_ranks)
        for source, distances in enumerate(self._distances(topology, scale)):
            targets = np.flatnonzero(traffic[source] != 0)
            if not np.isfinite(distances[targets]).all():
                raise CertificateError(f"rank {topology.compute_nodes[source]!r} cannot reach all that it sends to")
            total = distances[targets].astype(np.int64).astype(object)
            amount += int((total * traffic[source, targets]).sum())
        return Crossing(Fraction(amount, scale), self.value(topology))

    def dual_reasons(self, links: str, amount: str, collective: Collective) -> tuple[str, ...]:  # noqa: ARG002
        """Explain the lengths, and the sum of traffic times distance."""
        return (
            f"Assign the dual lengths below to {links}, and length 0 to all others.",
            "On every path from one rank to another, the lengths sum to at least the shortest distance.",
            f"Over all pairs, traffic times distance is {amount}: what each unit of rate uses.",
        )

    def reason(self, topology: Topology, collective: AnyCollective) -> str:  # noqa: ARG002
        """State the sums that the bound compares."""
        return f"dual lengths of {len(self.links)} links: traffic times distance is at most bandwidth times length"

    def _distances(self, topology: Topology, scale: int) -> Iterator[FloatArray]:
        """Distances of all ranks from each rank, whole numbers in units of ``1 / scale``."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import dijkstra

        tails, heads, _, _ = topology.arrays
        lengths = np.zeros(len(tails), dtype=np.int64)
        places = {(link.tail, link.head): place for place, link in enumerate(topology.links)}
        total = {places[tail, head]: int(length * scale) for tail, head, length in self.links}
        # No path passes a node twice, so no distance is more than all lengths together.
        if sum(total.values()) >= EXACT_FLOATS:
            raise CertificateError("the bound's dual lengths sum to 2^53 or more of their common unit")
        lengths[list(total)] = list(total.values())
        size = len(topology.nodes)
        # Stored zeros are links of length 0, not missing ones.
        graph = csr_array((lengths.astype(np.float64), (tails, heads)), shape=(size, size))
        for source in range(topology.num_ranks):
            yield dijkstra(graph, indices=source)[: topology.num_ranks]
