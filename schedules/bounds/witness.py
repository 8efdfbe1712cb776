"""`Witness`, the proof of a bound: the data that crosses part of a network, checked without solvers and flows."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Self

from ...errors import CertificateError
from ...support.formatting import exact
from ...support.validation import shown
from ...topologies import Topology
from ..collective import AnyCollective, Collective, Direction, as_collective

EVERY_SCHEDULE = "all schedules"
"""Scope of a bound without exceptions."""

Pair = tuple[str, str]


class Crossing(NamedTuple):
    """An `amount` of data that a collective must move over a `bandwidth` in GB/s.

    Their ratio bounds ``1 / x`` from below.  The shard of a rank of weight w has w units of data.
    """

    amount: Fraction
    bandwidth: Fraction


class WitnessView(NamedTuple):
    """Parts and links of a witness for figures."""

    parts: tuple[frozenset[str], ...]  # Sets of nodes whose borders count; none for dual values and lengths of links
    links: frozenset[Pair]  # Links whose bandwidth the witness adds up
    words: str  # Name of such a link, for a legend


class Argument(NamedTuple):
    """The argument of a witness in words."""

    title: str  # The kind of argument
    reasons: tuple[str, ...]  # Sentences, in the order of the argument
    counted: str  # Name of the sum over the links
    duals: Mapping[Pair, Fraction] | None = None  # Weight of each link's bandwidth; None for 1


class Witness(ABC):
    """The proof of a bound.

    Attributes
    ----------
    field : str
        Its name in plan files, such as ``"cut"``; class attribute.
    by_rank : tuple of str
        Names of attributes that have an entry for each rank, or none; class attribute.
    """

    field: ClassVar[str]
    by_rank: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def check(self, topology: Topology) -> None:
        """Raise `CertificateError` unless this fits the topology."""

    @abstractmethod
    def crossing(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Add up the data that a collective must move across this, and the bandwidth for it.

        Raises `CertificateError` if this says nothing about the collective on this topology.

        Parameters
        ----------
        topology : Topology
            One that `check` accepts.
        collective : str or Collective
            Such as ``"allgather"``.
        weights : tuple of int
            Relative sizes of the shards in rank order, empty for equal ones.
        """

    def verify(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Check that this fits the topology, and return `crossing`; raises as both."""
        self.check(topology)
        return self.crossing(topology, collective, weights)

    @abstractmethod
    def link_weights(self, topology: Topology, collective: AnyCollective) -> dict[Pair, Fraction]:
        """Return y, the weight of each link's bandwidth in `crossing`; other links count nothing."""

    @abstractmethod
    def reason(self, topology: Topology, collective: AnyCollective) -> str:
        """Say in one line why no schedule of the collective is faster."""

    @abstractmethod
    def to_json(self) -> Any:
        """Describe it by lists, texts and integers, ready for `json.dumps`."""

    @classmethod
    @abstractmethod
    def from_json(cls, value: Any) -> Self:
        """Build it from the value of `to_json`."""

    def scope(self, collective: AnyCollective) -> str:  # noqa: ARG002
        """Say which schedules of the collective the bound is about."""
        return EVERY_SCHEDULE

    def view(self, topology: Topology, collective: Collective) -> WitnessView:
        """Return the parts and links that figures show."""
        weights = self.link_weights(topology, collective)
        return WitnessView((), frozenset(pair for pair, weight in weights.items() if weight > 0), "link in the bound")

    def rows(self, topology: Topology, collective: Collective) -> dict[str, str]:
        """Describe it by lines of a summary."""
        return {"bottleneck": self.reason(topology, collective)}

    def argument(
        self,
        topology: Topology,
        collective: Collective,
        weights: tuple[int, ...],  # noqa: ARG002
        links: str,  # noqa: ARG002
    ) -> Argument:
        """Argue in sentences; `links` says how many links it counts, other parameters are as for `crossing`."""
        reasons = (f"{self.reason(topology, collective)}.",)
        return Argument("A bound", reasons, "bandwidth times weight", self.link_weights(topology, collective))


def data_text(amount: Fraction, topology: Topology, collective: Collective, weights: tuple[int, ...]) -> str:
    """Describe an amount of data in units."""
    if collective.has_items:
        return f"{amount} of {collective.total_weight} units of all items"  # type: ignore[attr-defined]
    if collective.in_pairs:
        return f"{amount} units of traffic" if weights else f"{amount} times the data from one rank to another"
    if weights:
        return f"shards of total weight {amount}"
    return f"{amount} {'shard' if amount == 1 else 'shards'} (all data: {topology.num_ranks} shards)"


WITHOUT_CODING = "This holds for schedules that send, copy and reduce data, without network coding."


class LinkValue(NamedTuple):
    """The worth of a unit of bandwidth from `tail` to `head`, of a link or a hop: `dual`, in one unit for all."""

    tail: str
    head: str
    dual: Fraction


@dataclass(frozen=True)
class LinkDuals(Witness):
    """Dual values of links, which weigh their bandwidths."""

    dual_name: ClassVar[str] = "value"

    links: tuple[LinkValue, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "links", as_link_values(self.links))

    def value(self, topology: Topology) -> Fraction:
        """Return the worth of all links together, in GB/s."""
        return sum((dual * topology.link(tail, head).bandwidth for tail, head, dual in self.links), Fraction(0))

    def link_weights(self, topology: Topology, collective: AnyCollective) -> dict[Pair, Fraction]:  # noqa: ARG002
        """Return the dual value of every link."""
        return {(tail, head): dual for tail, head, dual in self.links}

    def view(self, topology: Topology, collective: Collective) -> WitnessView:  # noqa: ARG002
        """Return the links with a dual value, or a length."""
        weighted = frozenset((entry.tail, entry.head) for entry in self.links if entry.dual > 0)
        return WitnessView((), weighted, f"link with a dual {self.dual_name} in the bound")

    def argument(self, topology: Topology, collective: Collective, weights: tuple[int, ...], links: str) -> Argument:
        """Argue by the dual values of links."""
        amount, bandwidth = self.crossing(topology, collective, weights)
        noun = "length" if self.dual_name == "length" else "dual value"
        total = f"All links together offer bandwidth times {noun}: {exact(bandwidth)}."
        duals = {(tail, head): dual for tail, head, dual in self.links}
        reasons = (*self.dual_reasons(links, exact(amount), collective), total)
        return Argument(f"Dual {self.dual_name}s of links", reasons, f"bandwidth times {noun}", duals)

    @abstractmethod
    def dual_reasons(self, links: str, amount: str, collective: Collective) -> tuple[str, ...]:
        """Explain the dual values, and the bandwidth that a unit of rate uses."""

    def to_json(self) -> Any:
        """Rows of both ends of a link and its dual value."""
        return value_rows(self.links)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Build it from such rows."""
        return cls(values_from_rows(value))


class RootedDuals(LinkDuals):
    """Dual values of links, with the use of data that is broadcast from a root or reduced at one."""

    @abstractmethod
    def uses(self, topology: Topology, direction: Direction) -> list[Fraction | None]:
        """Return by root the least use of a shard; None where it cannot reach all ranks."""

    def crossing(self, topology: Topology, collective: AnyCollective, weights: tuple[int, ...] = ()) -> Crossing:
        """Add up the use of shards, and the worth of all links; see `Witness.crossing`."""
        collective = as_collective(collective)
        if collective.in_pairs or collective.has_items:
            raise CertificateError(f"dual values of trees do not bound {collective.name!r}")
        sizes = weights or (1,) * topology.num_ranks
        by_phase = [self.uses(topology, direction) for direction in collective.phases]
        if collective.has_two_phases:
            sums = [here + there for here, there in zip(*by_phase, strict=True) if None not in (here, there)]
            return Crossing(sum(sizes) * min(sums, default=Fraction(0)), self.value(topology))
        amount = Fraction(0)
        for rank, size, use in zip(topology.compute_nodes, sizes, by_phase[0], strict=True):
            if size and use is None:
                raise CertificateError(f"rank {rank!r} is not connected with every other in {topology}")
            amount += size * (use or Fraction(0))
        return Crossing(amount, self.value(topology))

    def reason(self, topology: Topology, collective: AnyCollective) -> str:
        """State the worth of the bandwidth, and the schedules that the bound is about."""
        amount, value = self.crossing(topology, collective)
        return (
            f"weighted by dual values, the links offer {exact(value)}, and {self.scope(collective)} use at least "
            f"{exact(amount)} per unit of rate"
        )


def as_link_values(rows: object) -> tuple[LinkValue, ...]:
    """Read dual values with both ends of their links; raises `CertificateError` for anything else."""
    return tuple(_as_link_value(row) for row in as_parts(rows, "list of dual values", "dual values with both ends"))


def _as_link_value(row: object) -> LinkValue:
    if not isinstance(row, tuple) or [type(end) for end in row[:2]] != [str, str] or len(row) != 3:
        raise CertificateError(f"the bound's list of dual values contains {shown(row)}; expected (tail, head, value)")
    tail, head, dual = row
    if type(dual) not in (int, Fraction):
        raise CertificateError(
            f"the bound's dual value of {shown((tail, head))} is {shown(dual)}; expected a Fraction or an integer"
        )
    return LinkValue(tail, head, Fraction(dual))


def value_rows(duals: Iterable[LinkValue]) -> list[list[str]]:
    """Write dual values as rows of both ends and the exact dual value."""
    return [[tail, head, str(dual)] for tail, head, dual in duals]


def values_from_rows(rows: Iterable[tuple[str, str, str]]) -> tuple[LinkValue, ...]:
    """Read rows of `value_rows`."""
    return tuple(LinkValue(tail, head, Fraction(dual)) for tail, head, dual in rows)


def value_by_link(duals: Sequence[LinkValue], links: Iterable[Pair], what: str) -> dict[Pair, Fraction]:
    """Arrange dual values by their links."""
    mapping: dict[Pair, Fraction] = {}
    for tail, head, dual in duals:
        if (tail, head) not in links:
            raise CertificateError(
                f"the bound has a dual value for {what} {shown((tail, head))}, which this topology does not have"
            )
        if (tail, head) in mapping:
            raise CertificateError(f"the bound has two dual values for {what} {shown((tail, head))}; expected one")
        if dual < 0:
            raise CertificateError(
                f"the bound's dual value of {what} {shown((tail, head))} is {dual}; expected at least 0"
            )
        mapping[tail, head] = dual
    return mapping


def as_node_set(nodes: object, what: str) -> frozenset[str]:
    """Read names of nodes, each of which counts once however often it is written."""
    names = as_parts(nodes, what, "names of nodes")
    if unknown := [name for name in names if type(name) is not str]:
        raise CertificateError(f"the bound's {what} contains {shown(unknown[0])}; expected names of nodes")
    return nodes if type(nodes) is frozenset else frozenset(names)


def as_parts(values: object, what: str, expected: str) -> tuple[Any, ...]:
    """Read the parts of a witness; a text, or a value without items, raises `CertificateError`."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise CertificateError(f"the bound's {what} is {shown(values)}; expected a collection of {expected}")
    return tuple(values)


def check_known(nodes: frozenset[str], topology: Topology, what: str) -> None:
    """Raise `CertificateError` unless all are nodes of the topology."""
    if unknown := sorted(node for node in nodes if node not in topology.node_index):
        raise CertificateError(f"the bound's {what} names {shown(unknown[0])}, which is not a node of {topology}")
