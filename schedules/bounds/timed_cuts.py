"""`TimedCut`: a cut whose nodes change sides at different times, which bounds a flow over time."""

from dataclasses import dataclass
from fractions import Fraction

from ...errors import CertificateError
from ...support.formatting import abbreviated_names, exact
from ...support.validation import shown
from .time_witness import TimedRequest, TimeWitness
from .witness import as_node_set


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
        """Compare what links can carry with what they must, see `TimeWitness.least_time`."""
        amount, carried = request.amount(self.sources, self.sinks), self.carried(request)
        if carried > amount or amount == 0:
            raise CertificateError(
                f"the links can carry {carried} kB where the potentials of the bound need at most {amount} kB, above 0"
            )
        potential = self._potential_of(request)
        return min(potential[name] for name in self.sources)

    def carried(self, request: TimedRequest) -> Fraction:
        """Return what all links carry in the times w(e), in kB."""
        potential = self._potential_of(request)
        carried = Fraction(0)
        for tail, head, bandwidth, delay in request.links():
            time = potential[tail] - potential[head] - delay
            if time > 0:
                carried += bandwidth * time
        return carried

    def argument(self, request: TimedRequest) -> str:
        """Latency, where the potentials give no link time to carry anything."""
        return "flow" if self.carried(request) else "latency"

    def reason(self, request: TimedRequest) -> str:
        """Name the ends, and what must get from one to the other."""
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
        if wrong := [value for value in self.potentials if type(value) is not Fraction]:
            raise CertificateError(f"a potential of the bound is {shown(wrong[0])}; expected an exact Fraction")
        potential = dict(zip(nodes, self.potentials, strict=True))
        for name in self.sinks:
            if potential.get(name, 0) > 0:
                raise CertificateError(f"the potential of the sink {name!r} is {potential[name]}; expected at most 0")
        return potential
