"""Certificate of a bound in words: the argument of its witness, the sum over its links, and the bound."""

from collections import Counter
from fractions import Fraction
from typing import NamedTuple

from ...schedules import Bound
from ...schedules.bounds.witness import Crossing
from ...support.formatting import count_text, exact
from ..tables import witness_view

Pair = tuple[str, str]
Pairs = tuple[Pair, ...]


class Term(NamedTuple):
    """Links with equal weight and bandwidth."""

    links: int  # How many
    bandwidth: Fraction  # GB/s of each
    dual: Fraction  # What each GB/s counts; 1 but for dual values and lengths

    @property
    def total(self) -> Fraction:
        """Contribution of these links to the sum."""
        return self.links * self.bandwidth * self.dual


class Certificate(NamedTuple):
    """The argument of a bound in words and numbers."""

    title: str  # The kind of argument
    reasons: tuple[str, ...]  # Sentences, in the order of the argument
    counted: str  # What the links' sum is called
    terms: tuple[Term, ...]  # Links that are added up, those with most bandwidth first
    weighted: bool  # Whether the terms have dual values other than 1 by their kind
    links: Pairs  # The same links by name
    divisions: tuple[str, ...]  # From the sums to the bound, as equations

    @property
    def total(self) -> Fraction:
        """Sum of the terms."""
        return sum((term.total for term in self.terms), Fraction(0))


def certificate(bound: Bound) -> Certificate:
    """Return the certificate of a bound."""
    topology, counted = bound.topology, witness_view(bound).links
    links = tuple((link.tail, link.head) for link in topology.links if (link.tail, link.head) in counted)
    crossing = bound.witness.crossing(topology, bound.collective, bound.weights)
    argument = bound.witness.argument(topology, bound.collective, bound.weights, count_text(len(links), "link"))
    duals = dict.fromkeys(links, Fraction(1)) if argument.duals is None else argument.duals
    counts = Counter((dual, topology.link(*pair).bandwidth) for pair, dual in duals.items() if dual)
    terms = tuple(Term(counts[dual, bandwidth], bandwidth, dual) for dual, bandwidth in sorted(counts, reverse=True))
    weighted = argument.duals is not None
    return Certificate(*argument[:3], terms, weighted, links, _divisions(bound, crossing))


def _divisions(bound: Bound, crossing: Crossing) -> tuple[str, ...]:
    """Derive the bounds on time and bandwidth from the sums."""
    divisors = (
        str(number) if number.denominator == 1 else f"({number})" for number in (crossing.bandwidth, bound.inverse_rate)
    )
    by_bandwidth, by_time = divisors
    return (
        f"time ≥ {crossing.amount} / {by_bandwidth} = {exact(bound.inverse_rate, 'ns')} per byte of {_unit(bound)}",
        f"algbw ≤ {bound.total_weight} / {by_time} = {exact(bound.algbw, 'GB/s')}",
    )


def _unit(bound: Bound) -> str:
    """Describe one unit of data."""
    if bound.collective.in_pairs:
        return "one unit of traffic" if bound.weights else "the data from one rank to another"
    if bound.collective.has_one_root:
        return "the root's data"
    return "a shard of weight 1" if bound.weights else "a shard"
