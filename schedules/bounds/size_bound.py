"""`SizeBound`: the least time of a collective with a given amount of data, and what proves it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ...errors import CertificateError
from ...support.formatting import exact, time_text
from ...support.validation import is_whole, shown
from ...topologies import RuntimeCosts, Topology, reached_network
from ..traffic.collective import Collective
from .bound import Bound
from .time_witness import TimedRequest, TimeWitness
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
        What the software adds.
    witness : TimeWitness
        What the time follows from: `TimedCut`, `FanOut` or `RateAndHop`.
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
        """State what a witness proves of a request; raises `CertificateError` if that is nothing."""
        time = request.costs.launch + witness.least_time(request)
        return cls(topology, request.rate, request.num_bytes, request.costs, witness, time)

    @property
    def request(self) -> TimedRequest:
        """What the witness is about."""
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
        """What decides: "latency", "flow", "fan-out" or "bandwidth"."""
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
