"""`TimeWitness`, the proof of a least time, and `TimedCut`: a cut whose nodes change sides at different times.

A witness is a statement about a collective with an amount of data; a timed cut bounds a flow over time.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import CertificateError
from ...support.formatting import abbreviated_names, exact
from ...support.validation import shown
from ...topologies import RuntimeCosts, Topology
from ..collective import Collective
from .bound import Bound
from .witness import as_node_set

BYTES_PER_KB = 1000


class TimedLink(NamedTuple):
    """A link as data passes it from `tail` to `head`, with its `bandwidth` in GB/s and its `delay` in µs.

    Where data is reduced it is turned around, so that all data comes from the sources of `TimedRequest.amount`.
    The delay is the latency, and `RuntimeCosts.alpha` where the link leaves a rank.
    """

    tail: str
    head: str
    bandwidth: Fraction
    delay: Fraction


class TimedRequest(NamedTuple):
    """A collective with an amount of data, on a network with the bandwidths that data reaches.

    Attributes
    ----------
    rate : Bound
        For the network, the collective and the weights of its shards.
    num_bytes : int
        Bytes in all, as nccl-tests counts them.
    costs : RuntimeCosts
        Whose efficiency is in the network's bandwidths already.
    """

    rate: Bound
    num_bytes: int
    costs: RuntimeCosts

    @property
    def network(self) -> Topology:
        """With the bandwidths that data reaches."""
        return self.rate.topology

    @property
    def collective(self) -> Collective:
        """Whose data moves."""
        collective = self.rate.collective
        assert isinstance(collective, Collective)  # `Bound` looks up names
        return collective

    @property
    def is_turned(self) -> bool:
        """Whether time runs backwards: data is reduced on its way, and what one rank has must get to several."""
        return self.collective.direction == "reduce"

    @property
    def kilobytes(self) -> Fraction:
        """Data in all."""
        return Fraction(self.num_bytes, BYTES_PER_KB)

    def amount(self, sources: frozenset[str], sinks: frozenset[str]) -> Fraction:
        """Return how many kB of independent data must get from sources to sinks, disjoint sets of ranks.

        Notes
        -----
        Between pairs, that is all traffic from sources to sinks.  Otherwise there is one sink: it gets the shards of
        the sources, or, of an allreduce, sums of as many bytes as there are in all, each of which depends on what the
        sources have.  Turned around, the sink is a rank whose contributions to the shards of the sources are needed.
        """
        self._check_ends(sources, sinks)
        if self.collective.has_two_phases:
            return self.kilobytes
        network, weights = self.network, self.rate.weights
        starts = [network.node_index[name] for name in sources]
        if self.collective.in_pairs:
            ranks = network.num_ranks
            ends = [network.node_index[name] for name in sinks]
            crossing = sum(weights[start * ranks + end] if weights else 1 for start in starts for end in ends)
        else:
            crossing = sum(weights[start] if weights else 1 for start in starts)
        return self.kilobytes * crossing / self.rate.total_weight

    def links(self) -> Iterator[TimedLink]:
        """Iterate over the links as data passes them."""
        ranks, alpha = set(self.network.compute_nodes), self.costs.alpha
        for tail, head, bandwidth, latency in self.network.links:
            start, end = (head, tail) if self.is_turned else (tail, head)
            yield TimedLink(start, end, bandwidth, latency + alpha if start in ranks else latency)

    def _check_ends(self, sources: frozenset[str], sinks: frozenset[str]) -> None:
        """Raise `CertificateError` unless they are ranks between which data moves."""
        ranks = set(self.network.compute_nodes)
        for names, what in ((sources, "sources"), (sinks, "sinks")):
            if not names or not names <= ranks:
                odd = min(map(repr, names - ranks), default="none")
                raise CertificateError(f"the {what} of the bound have {odd}; expected ranks of {self.network}")
        if both := sorted(sources & sinks):
            raise CertificateError(f"the bound has {both[0]!r} among its sources and its sinks; expected one of them")
        if len(sinks) > 1 and not self.collective.in_pairs:
            raise CertificateError(f"the bound of a {self.collective} has {len(sinks)} sinks; expected one")


class TimeWitness(ABC):
    """The proof of a least time."""

    @abstractmethod
    def least_time(self, request: TimedRequest) -> Fraction:
        """Return the least time in µs without the launch; `CertificateError` if this proves none."""

    @abstractmethod
    def argument(self, request: TimedRequest) -> str:
        """Name the kind of reason in a word or two."""

    @abstractmethod
    def reason(self, request: TimedRequest) -> str:
        """Say in one line why no schedule is faster."""


def shards_to(request: TimedRequest, rank: str) -> list[str]:
    """Names of the other ranks that some data of `rank` must reach, of a reduction in the end."""
    collective, weights = request.collective, request.rate.weights
    names = request.network.compute_nodes
    start, ranks = request.network.node_index[rank], len(names)
    ranks_outside = [name for name in names if name != rank]
    if not weights or collective.has_two_phases:
        return ranks_outside
    if collective.in_pairs:
        return [names[end] for end in np.flatnonzero(weights[start * ranks : (start + 1) * ranks]) if end != start]
    if request.is_turned:
        return [names[end] for end in np.flatnonzero(weights) if end != start]
    return ranks_outside if weights[start] else []


@dataclass(frozen=True)
class TimedCut(TimeWitness):
    """From ranks `sources` to `sinks`, see `TimedRequest.amount`, by `potentials` of all nodes in the topology's order.

    These are the µs that data needs at least from a node to sinks if little else is on its way, at most 0 for sinks.

    With ``w(e) = max(0, pi(tail) - pi(head) - delay(e))`` no schedule is faster than the least potential of a source,
    if all links e together carry no more than the data from sources to sinks in the time w(e) each.
    `docs/explanation/every-size.md` has the proof, after Ford and Fulkerson (Operations Research 6(3), 1958).

    Examples
    --------
    40 kB over 10 GB/s and a latency of 1 µs:

    >>> from collopt.schedules import Bound, Cut
    >>> from collopt.topologies import LINKS_ONLY, Topology
    >>> network = Topology.from_links([("a", "b", 10, 1)], compute="ab", bidirectional=True)
    >>> rate = Bound.from_witness(network, "broadcast", Cut(frozenset("a")), (1, 0))
    >>> cut = TimedCut(frozenset("a"), frozenset("b"), (Fraction(5), Fraction(0)))
    >>> cut.least_time(TimedRequest(rate, 40_000, LINKS_ONLY))
    Fraction(5, 1)
    """

    sources: frozenset[str]
    sinks: frozenset[str]
    potentials: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        for name in ("sources", "sinks"):
            object.__setattr__(self, name, as_node_set(getattr(self, name), name))

    def least_time(self, request: TimedRequest) -> Fraction:
        """Compare the capacity of links with the data that they must carry, see `TimeWitness.least_time`."""
        amount, capacity = request.amount(self.sources, self.sinks), self.capacity(request)
        if capacity > amount or amount == 0:
            raise CertificateError(
                f"the links can carry {capacity} kB, but the potentials of the bound need at most {amount} kB, above 0"
            )
        potential = self._potential_of(request)
        return min(potential[name] for name in self.sources)

    def capacity(self, request: TimedRequest) -> Fraction:
        """Return the capacity of all links in the times w(e), in kB."""
        potential = self._potential_of(request)
        capacity = Fraction(0)
        for tail, head, bandwidth, delay in request.links():
            time = potential[tail] - potential[head] - delay
            if time > 0:
                capacity += bandwidth * time
        return capacity

    def argument(self, request: TimedRequest) -> str:
        """Latency, where the potentials give no link time to carry anything."""
        return "flow" if self.capacity(request) else "latency"

    def reason(self, request: TimedRequest) -> str:
        """Name the ends, and the data that must get from one to the other."""
        amount = exact(request.amount(self.sources, self.sinks), "kB")
        first, last = ("sinks", "sources") if request.is_turned else ("sources", "sinks")
        ends = [
            abbreviated_names([name for name in request.network.compute_nodes if name in getattr(self, side)])
            for side in (first, last)
        ]
        return f"{amount} of {ends[0]} must reach {ends[1]}"

    def _potential_of(self, request: TimedRequest) -> dict[str, Fraction]:
        """Arrange the potentials by node, after checking them."""
        nodes = request.network.nodes
        if not isinstance(self.potentials, tuple) or len(self.potentials) != len(nodes):
            raise CertificateError(f"the bound has no tuple of {len(nodes)} potentials; expected one for each node")
        if mismatched := [value for value in self.potentials if type(value) is not Fraction]:
            raise CertificateError(f"a potential of the bound is {shown(mismatched[0])}; expected an exact Fraction")
        potential = dict(zip(nodes, self.potentials, strict=True))
        for name in self.sinks:
            if potential.get(name, 0) > 0:
                raise CertificateError(f"the potential of the sink {name!r} is {potential[name]}; expected at most 0")
        return potential
