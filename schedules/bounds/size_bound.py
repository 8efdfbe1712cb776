"""`TimeWitness`, the proof of a least time, and `TimedCut`: a cut whose nodes change sides at different times.

A witness is a statement about a collective with an amount of data; a timed cut bounds a flow over time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from heapq import heappop, heappush
from itertools import accumulate
from math import lcm
from typing import NamedTuple

import numpy as np

from ...errors import CertificateError
from ...support.formatting import abbreviated_names, exact, time_text
from ...support.validation import is_whole, shown
from ...topologies import RuntimeCosts, Topology, reached_network
from ..collective import Collective
from ..demands import Demands
from .bound import Bound
from .witness import EVERY_SCHEDULE, as_node_set

BYTES_PER_KB = 1000


NS_PER_US = 1000


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
        Between pairs, that is all traffic from sources to sinks; of demands, the items that only sources have and the
        sink needs.  Otherwise there is one sink: it gets the shards of
        the sources, or, of an allreduce, sums of as many bytes as there are in all, each of which depends on what the
        sources have.  Turned around, the sink is a rank whose contributions to the shards of the sources are needed.
        """
        self._check_ends(sources, sinks)
        if self.collective.has_two_phases:
            return self.kilobytes
        if isinstance(self.collective, Demands):
            crossing = sum(
                group.weight
                for group in self.collective.groups
                if sources.issuperset(group.sources) and not sinks.isdisjoint(group.destinations)
            )
            return self.kilobytes * crossing / self.rate.total_weight
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
    if isinstance(collective, Demands):
        own = [group.destinations for group in collective.groups if group.sources == (rank,)]
        return [name for name in names if any(name in destinations for destinations in own)]
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


@dataclass(frozen=True)
class RateAndHop(TimeWitness):
    """The bound for endless data: some link is busy as long as it says, and its last byte still has to make a hop."""

    def least_time(self, request: TimedRequest) -> Fraction:
        """Add the two, see `TimeWitness.least_time`."""
        latency = min(latency for _, latency in request.network.columns.rates)
        return request.costs.alpha + latency + Fraction(request.num_bytes) / (request.rate.algbw * NS_PER_US)

    def argument(self, request: TimedRequest) -> str:  # noqa: ARG002
        """As the bound for endless data."""
        return "bandwidth"

    def reason(self, request: TimedRequest) -> str:
        """Give the reason of the bound for endless data."""
        return request.rate.witness.reason(request.network, request.collective)


@dataclass(frozen=True)
class SizeBound:
    """No schedule of the collective moves so many bytes in less time, and `witness` shows why; see `collopt.bound`.

    Attributes
    ----------
    topology : Topology
        The network at line rate.
    rate : Bound
        For endless data, on the network with the bandwidths that data reaches.
    num_bytes : int
        Bytes in all, as nccl-tests counts them.
    costs : RuntimeCosts
        Costs that the software adds.
    witness : TimeWitness
        Proof of the time: `TimedCut`, `FanOut` or `RateAndHop`.
    time : Fraction
        µs, no schedule takes less.

    Examples
    --------
    >>> import collopt
    >>> network = collopt.topologies.ring(4, bandwidth=10, latency=1)
    >>> found = collopt.bound(network, "allgather", size=40_000)
    >>> found.verify()
    >>> found.time, found.argument, found.algbw
    (Fraction(5, 2), 'flow', Fraction(16, 1))
    """

    topology: Topology
    rate: Bound
    num_bytes: int
    costs: RuntimeCosts
    witness: TimeWitness
    time: Fraction

    @classmethod
    def from_witness(cls, topology: Topology, request: TimedRequest, witness: TimeWitness) -> SizeBound:
        """State the bound that a witness proves of a request; raises `CertificateError` if there is none."""
        time = request.costs.launch + witness.least_time(request)
        return cls(topology, request.rate, request.num_bytes, request.costs, witness, time)

    @property
    def request(self) -> TimedRequest:
        """The subject of the witness."""
        return TimedRequest(self.rate, self.num_bytes, self.costs)

    @property
    def collective(self) -> Collective:
        """Whose time it is."""
        return self.request.collective

    @property
    def microseconds(self) -> float:
        """`time` as a float."""
        return float(self.time)

    @property
    def algbw(self) -> Fraction:
        """Largest algorithm bandwidth, GB/s as in nccl-tests: bytes in all over time."""
        if not self.time:
            raise CertificateError("the least time is 0, so there is no largest bandwidth")
        return Fraction(self.num_bytes) / (self.time * NS_PER_US)

    @property
    def busbw(self) -> Fraction:
        """Largest bus bandwidth, GB/s as in nccl-tests; see `Collective.bus_factor`."""
        return self.algbw * self.rate.busbw / self.rate.algbw

    @property
    def argument(self) -> str:
        """The deciding argument: "latency", "flow", "fan-out" or "bandwidth"."""
        return self.witness.argument(self.request)

    @property
    def scope(self) -> str:
        """Which schedules the bound is about; all of them, unless it is that for endless data and says otherwise."""
        return self.rate.scope if isinstance(self.witness, RateAndHop) else EVERY_SCHEDULE

    def verify(self) -> None:
        """Check the witness without solvers and flows; raises `CertificateError` unless it proves the claim."""
        for value, kind in ((self.rate, Bound), (self.costs, RuntimeCosts), (self.witness, TimeWitness)):
            if not isinstance(value, kind):
                raise CertificateError(f"the bound has {shown(value)}; expected a {kind.__name__}")
        if not is_whole(self.num_bytes) or self.num_bytes < 1:
            raise CertificateError(f"the bound is about {shown(self.num_bytes)} bytes; expected a positive number")
        if self.rate.topology != reached_network(self.topology, self.costs):
            raise CertificateError("the bound for endless data is not about the bandwidths that data reaches here")
        self.rate.verify()
        proved = self.costs.launch + self.witness.least_time(self.request)
        if type(self.time) is not Fraction or proved != self.time:
            raise CertificateError(f"the bound claims {shown(self.time)} µs, but its witness shows {proved} µs")

    def __str__(self) -> str:
        return (
            f"{self.collective} of {exact(Fraction(self.num_bytes), 'bytes')}: at least {time_text(self.time)} "
            f"({self.costs.label}), by its {self.argument}"
        )

    def __repr__(self) -> str:
        return f"<SizeBound {self} on {self.topology.name}>"


@dataclass(frozen=True)
class FanOut(TimeWitness):
    """The data of a rank, `root`, must get to many others, each of which gets it from a message of a rank that has it.

    A message reaches its receiver no sooner than the least time of a hop after its sender began with it, and a sender
    begins one message for every `RuntimeCosts.send`.  Then the fastest is that every rank which has the data goes on
    sending it to others: Karp, Sahay, Santos and Schauser, "Optimal broadcast and summation in the LogP model", SPAA
    1993.  It holds however data is cut, or merged into messages.  Ranks that share a switch which copies or adds can
    all get it from one message, without cost to the sender, a hop after the first of them has it.

    Examples
    --------
    With 1 µs for each message and 3 µs for each hop, the first receiver helps the root to reach the fifth other rank:

    >>> [int(spreading_time(Fraction(3), Fraction(3), Fraction(1), (1,) * others, 1)) for others in (1, 2, 3, 4, 5)]
    [3, 4, 5, 6, 6]
    """

    root: str

    def least_time(self, request: TimedRequest) -> Fraction:
        """Spread the data of the root, see `TimeWitness.least_time`."""
        if self.root not in request.network.compute_nodes:
            raise CertificateError(f"the root of the bound is {shown(self.root)}; expected a rank")
        receivers = shards_to(request, self.root)
        if not receivers:
            raise CertificateError(f"no rank needs anything of {self.root!r}, the root of the bound")
        group_of = copying_groups(request.network)
        near, far = hop_latencies(request.network, group_of)
        alpha = request.costs.alpha
        needy = Counter(group_of[name] for name in receivers if group_of[name] != group_of[self.root])
        if not needy:
            return alpha + near
        limit = max(Counter(group_of.values()).values())
        counts = tuple(sorted(needy.values(), reverse=True))
        return spreading_time(alpha + near, alpha + far, request.costs.send, counts, limit)

    def argument(self, request: TimedRequest) -> str:  # noqa: ARG002
        """Messages one after the other."""
        return "fan-out"

    def reason(self, request: TimedRequest) -> str:
        """State the number of ranks, and the cost of a message."""
        receivers, send = len(shards_to(request, self.root)), time_text(request.costs.send)
        return f"data of {self.root} must reach {receivers} ranks, with {send} for each message"


@cache
def spreading_time(near: Fraction, far: Fraction, send: Fraction, receivers: tuple[int, ...], limit: int) -> Fraction:
    """Return the least time until `receivers` in each other group, most first, have the data of one rank, in µs.

    `near` and `far` are least times of a hop in a group and between groups, `send` is the time between the begins of
    two messages of a rank, `limit` the size of the largest group.  By time T, a group has all data if a message
    reached it by ``T - near``, or else one for each receiver.  As many messages have arrived by some time as if each
    made one more group know, `near` later all of it.
    """
    scale = lcm(near.denominator, far.denominator, send.denominator)
    inside, between, gap = (int(time * scale) for time in (near, far, send))
    required_time = sum(receivers)
    begins = [0, *[inside] * (limit - 1)]  # when each rank that knows can begin with its next message
    arrivals: list[int] = []
    while len(arrivals) < required_time:
        begin = heappop(begins)
        arrivals.append(begin + between)
        heappush(begins, begin + gap)
        heappush(begins, begin + between)
        for _ in range(limit - 1):
            heappush(begins, begin + between + inside)
    saved = [0, *accumulate(count - 1 for count in receivers)]  # messages that the first groups to know need not get
    times = sorted({*arrivals, *(arrival + inside for arrival in arrivals)})
    for time in times:
        reached = sum(arrival <= time - inside for arrival in arrivals)
        if sum(arrival <= time for arrival in arrivals) >= required_time - saved[min(reached, len(receivers))]:
            return Fraction(time, scale)
    raise AssertionError("by the last arrival all are reached")


def copying_groups(network: Topology) -> dict[str, str]:
    """Join ranks that reach, or are reached from, one switch that copies or adds; by rank, the first of its group."""
    group_of = {name: name for name in network.compute_nodes}
    ranks = set(group_of)
    for switch in sorted(network.multicast | network.aggregation):
        around = {switch}
        for ahead in (True, False):
            visited, waiting = {switch}, [switch]
            while waiting:
                node = waiting.pop()
                links = network.out_links(node) if ahead else network.in_links(node)
                for other in (link.head if ahead else link.tail for link in links):
                    if other not in visited:
                        visited.add(other)
                        if other not in ranks:
                            waiting.append(other)
            around |= visited
        joined = {group_of[name] for name in around & ranks}
        first = min(joined, key=network.compute_nodes.index) if joined else ""
        group_of = {name: first if group in joined else group for name, group in group_of.items()}
    return group_of


def hop_latencies(network: Topology, group_of: dict[str, str]) -> tuple[Fraction, Fraction]:
    """Least latency of the links of a hop between any two ranks, and between two of different groups."""
    nearest: dict[str, list[tuple[Fraction, str]]] = {node: [] for node in network.nodes}
    waiting = [(Fraction(0), name, group) for name, group in group_of.items()]
    while waiting:
        latency, node, group = heappop(waiting)
        delays = nearest[node]
        if len(delays) == 2 or any(group == other for _, other in delays):
            continue
        delays.append((latency, group))
        for link in network.in_links(node):
            if link.tail not in group_of:
                heappush(waiting, (latency + link.latency, link.tail, group))
    hops = [
        (link.latency + latency, group != group_of[link.tail])
        for link in network.links
        if link.tail in group_of
        for latency, group in nearest[link.head]
    ]
    leaving = [latency for latency, leaves in hops if leaves]
    return min((latency for latency, _ in hops), default=Fraction(0)), min(leaving, default=Fraction(0))
