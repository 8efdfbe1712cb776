"""`SizeBound`: the least time of a collective with an amount of data, and its proof, such as `FanOut`.

`FanOut` is how fast data of one rank can spread, one message after the other (LogP).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from heapq import heappop, heappush
from itertools import accumulate
from math import lcm

from ...errors import CertificateError
from ...support.formatting import exact, time_text
from ...support.validation import is_whole, shown
from ...topologies import RuntimeCosts, Topology, reached_network
from ..collective import Collective
from .bound import Bound
from .time_witness import TimedRequest, TimeWitness, shards_to
from .witness import EVERY_SCHEDULE

NS_PER_US = 1000


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
