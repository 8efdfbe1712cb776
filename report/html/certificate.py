"""Why nothing can be faster, in words and sums that a reader can check with a pencil.

Every kind of witness gets its argument in sentences, the links that it adds up in groups of equal ones, and the two
divisions that turn the sum into a bound.  All numbers are the witness's own, exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from functools import singledispatch
from typing import NamedTuple

from ...schedules import BROADCAST, REDUCE, Bound, Cut, LinkLengths, LinkPrice, Partition, Prices, RankCuts, Witness
from ...support.formatting import SHOWN, count_text, rate, shortened
from ..tables.witness_links import witness_view

__all__ = ["Certificate", "Term", "certificate"]

Pair = tuple[str, str]

WITHOUT_CODING = "This is about schedules that send, copy and add up bytes, and do not code several into one."


class Term(NamedTuple):
    """Links that count alike.

    `links`: How many.
    `bandwidth`: GB/s of each.
    `price`: What each GB/s counts; 1 but for prices and lengths.
    """

    links: int
    bandwidth: Fraction
    price: Fraction

    @property
    def total(self) -> Fraction:
        """What these links add to the sum."""
        return self.links * self.bandwidth * self.price


class Certificate(NamedTuple):
    """What a bound follows from, ready to be read.

    `title`: The kind of argument.
    `reasons`: Sentences, in the order of the argument.
    `counted`: What the links' sum is called.
    `terms`: Links that are added up, those with most bandwidth first.
    `priced`: Whether the terms have prices other than 1 by their kind.
    `links`: The same links by name.
    `divisions`: From the sums to the bound, as equations.
    """

    title: str
    reasons: tuple[str, ...]
    counted: str
    terms: tuple[Term, ...]
    priced: bool
    links: tuple[Pair, ...]
    divisions: tuple[str, ...]

    @property
    def total(self) -> Fraction:
        """Sum of the terms."""
        return sum((term.total for term in self.terms), Fraction(0))


def certificate(bound: Bound) -> Certificate:
    """Write down what a bound follows from.

    >>> from collopt.topologies import ring
    >>> cut = Cut(frozenset({"gpu0", "gpu1", "gpu2"}))
    >>> proof = certificate(Bound.from_witness(ring(4, bandwidth=25), "allgather", cut))
    >>> proof.terms, proof.total
    ((Term(links=2, bandwidth=Fraction(25, 1), price=Fraction(1, 1)),), Fraction(50, 1))
    >>> proof.divisions[0]
    'time ≥ 3 / 50 = 3/50 ns per byte of a shard'
    """
    counted = witness_view(bound).links
    links = tuple((link.tail, link.head) for link in bound.topology.links if (link.tail, link.head) in counted)
    return _of(bound.witness, bound, links)


@singledispatch
def _of(witness: Witness, bound: Bound, links: tuple[Pair, ...]) -> Certificate:
    """Any witness: its reason, and links by what they count."""
    weights = witness.link_weights(bound.topology, bound.collective)
    prices = [LinkPrice(*pair, weight) for pair, weight in weights.items()]
    reasons = (f"{witness.reason(bound.topology, bound.collective)}.",)
    return _priced("A bound", reasons, "bandwidth times weight", prices, links, bound)


@_of.register(Cut)
def _of_cut(cut: Cut, bound: Bound, links: tuple[Pair, ...]) -> Certificate:
    entering = bound.collective.direction == "reduce"
    amount, bandwidth = cut.crossing(bound.topology, bound.collective, bound.weights)
    way = "in" if entering else "out"
    reasons = (
        _line_words(bound, cut),
        _crossing_words(bound, amount),
        f"Only {_leading(links)} {way}, with {rate(bandwidth)}{' together' if len(links) > 1 else ''}.",
    )
    counted = f"bandwidth that {'enters' if entering else 'leaves'} the cut"
    return _added_up("A bottleneck cut", reasons, counted, links, bound)


def _line_words(bound: Bound, cut: Cut) -> str:
    """Say what is inside a cut, or, where that is shorter, what is not."""
    topology = bound.topology
    sides = []
    for wanted in (True, False):
        ranks = [node for node in topology.compute_nodes if (node in cut.nodes) is wanted]
        switches = [node for node in topology.switch_nodes if (node in cut.nodes) is wanted]
        sides.append((ranks, switches, ", and ".join(filter(None, (shortened(ranks), shortened(switches))))))
    (ranks, switches, names), (others, _, rest) = sides
    total = len(topology.switch_nodes)
    some = f"all {total}" if len(switches) == total else f"{len(switches)} of the {total}"
    beside = f" and {some} switches" if total > 1 else f" and {shortened(switches)}" if switches else ""
    inside = f"Draw a line around {len(ranks)} of the {topology.num_ranks} ranks{beside}"
    return f"{inside}: all but {rest}." if len(others) < len(ranks) else f"{inside}: {names}."


def _crossing_words(bound: Bound, amount: Fraction) -> str:
    """What must pass the line of a cut, whatever the schedule."""
    collective, units = bound.collective, _units(bound, amount)
    if collective.has_two_phases:
        return f"Ranks outside want sums that ranks inside add to, so as much as all data must leave: {units}."
    if collective.in_pairs:
        return f"What the ranks inside have for the ranks outside must leave: {units}."
    if collective is BROADCAST:
        return "The root is inside and ranks are outside, so all its data must leave."
    if collective is REDUCE:
        return "The root is inside, so what the ranks outside add to its sum must enter: as much as the sum at least."
    if collective.reduces:
        return f"Ranks outside add to the sums of the ranks inside, so as much as these sums must enter: {units}."
    return f"Every rank outside wants the shards of all ranks inside, so these must leave at least once: {units}."


@_of.register(RankCuts)
def _of_rank_cuts(witness: RankCuts, bound: Bound, links: tuple[Pair, ...]) -> Certificate:
    topology = bound.topology
    amount, bandwidth = witness.crossing(topology, bound.collective, bound.weights)
    entering = bool(topology.multicast)
    widths = [cut.entering_bandwidth(topology) if entering else cut.bandwidth(topology) for cut in witness.cuts]
    widest = topology.compute_nodes[widths.index(bandwidth)]
    verb = "receive" if entering else "send"
    most = f"The widest is around {widest}, with {rate(bandwidth)}, so no rank can {verb} faster than that."
    least = f"In an allreduce of N ranks some rank must {verb} 2 (N − 1) / N times all data"
    reasons = (
        f"Draw a line around each of the {topology.num_ranks} ranks that leaves all other ranks outside.",
        most,
        f"{least}: {_units(bound, amount)}. {WITHOUT_CODING}",
    )
    counted = f"bandwidth that {'enters' if entering else 'leaves'} the widest cut"
    return _added_up("A cut around every rank", reasons, counted, links, bound)


@_of.register(Partition)
def _of_partition(witness: Partition, bound: Bound, links: tuple[Pair, ...]) -> Certificate:
    amount, bandwidth = witness.crossing(bound.topology, bound.collective, bound.weights)
    members = [[node for node in bound.topology.compute_nodes if node in part] for part in witness.parts]
    named = [shortened(ranks) for ranks in members if ranks]
    more = f" | and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    arrivals = "Each byte needs p − 1 arrivals at a part until one part knows its sum, and p − 1 more until all do"
    reasons = (
        f"Cut the network into parts, p = {len(named)} of which hold ranks: {' | '.join(named[:SHOWN])}{more}.",
        f"{arrivals}: {2 * (len(named) - 1)} times all data, which are {_units(bound, amount)}. {WITHOUT_CODING}",
        f"Only {_leading(links)} into one of these parts, with {rate(bandwidth)} together.",
    )
    return _added_up("A network in parts", reasons, "bandwidth that enters parts with ranks", links, bound)


@_of.register(LinkLengths)
def _of_lengths(witness: LinkLengths, bound: Bound, links: tuple[Pair, ...]) -> Certificate:
    amount, value = witness.crossing(bound.topology, bound.collective, bound.weights)
    reasons = (
        f"Give {count_text(len(links), 'link')} the lengths below, and all others length 0.",
        "Whichever way data goes from one rank to another, the lengths that it passes add up to the distance at least.",
        f"Over all pairs, traffic times distance is {amount}: so much every rate of 1 takes of the network.",
        f"All links together have bandwidth times length to give: {value}.",
    )
    return _priced("Lengths of links", reasons, "bandwidth times length", witness.links, links, bound)


@_of.register(Prices)
def _of_prices(witness: Prices, bound: Bound, links: tuple[Pair, ...]) -> Certificate:
    amount, value = witness.crossing(bound.topology, bound.collective, bound.weights)
    priced = f"Put prices on the bandwidth of {count_text(len(links), 'link')}, as below; all others are free."
    hops = (
        "What a rank must receive or send takes hops between ranks; those who share a hop pay no more for it together"
    )
    reasons = (
        f"{priced} They are the dual of a linear program, and were checked without it.",
        f"{hops} than the links of its cheapest way cost.",
        f"At these prices {bound.scope} use bandwidth worth {amount} per unit of rate.",
        f"All links together are worth bandwidth times price: {value}.",
    )  # fmt: skip
    return _priced("Prices of bandwidth", reasons, "bandwidth times price", witness.links, links, bound)


def _added_up(title: str, reasons: tuple[str, ...], counted: str, links: tuple[Pair, ...], bound: Bound) -> Certificate:
    """Group links by bandwidth, the largest first."""
    counts = Counter(bound.topology.link(tail, head).bandwidth for tail, head in links)
    terms = tuple(Term(counts[bandwidth], bandwidth, Fraction(1)) for bandwidth in sorted(counts, reverse=True))
    return Certificate(title, reasons, counted, terms, False, links, _divisions(bound))


def _priced(
    title: str,
    reasons: tuple[str, ...],
    counted: str,
    prices: Iterable[LinkPrice],
    links: tuple[Pair, ...],
    bound: Bound,
) -> Certificate:
    """Group links by price and bandwidth, the dearest first."""
    counts = Counter((price, bound.topology.link(tail, head).bandwidth) for tail, head, price in prices if price)
    terms = tuple(Term(counts[price, bandwidth], bandwidth, price) for price, bandwidth in sorted(counts, reverse=True))
    return Certificate(title, reasons, counted, terms, True, links, _divisions(bound))


def _leading(links: tuple[Pair, ...]) -> str:
    return f"{count_text(len(links), 'link')} {'leads' if len(links) == 1 else 'lead'}"


def _divisions(bound: Bound) -> tuple[str, ...]:
    """How the sums become a bound on the time, and on the bandwidth."""
    amount, bandwidth = bound.witness.crossing(bound.topology, bound.collective, bound.weights)
    return (
        f"time ≥ {amount} / {_divisor(bandwidth)} = {bound.inverse_rate} ns per byte of {_unit(bound)}",
        f"algbw ≤ {bound.total_weight} / {_divisor(bound.inverse_rate)} = {bound.algbw} GB/s",
    )


def _divisor(value: Fraction) -> str:
    return str(value) if value.denominator == 1 else f"({value})"


def _unit(bound: Bound) -> str:
    """What one unit of data is."""
    if bound.collective.in_pairs:
        return "a traffic of 1" if bound.weights else "what one rank has for another"
    if bound.collective.has_one_root:
        return "the root's data"
    return "a shard of weight 1" if bound.weights else "a shard"


def _units(bound: Bound, amount: Fraction) -> str:
    """So many units of data."""
    if bound.collective.in_pairs:
        return f"a traffic of {amount}" if bound.weights else f"{amount} times what one rank has for another"
    if bound.weights:
        return f"shards of weight {amount}"
    return f"{amount} {'shard' if amount == 1 else 'shards'}, where all data are {bound.topology.num_ranks}"
