"""Certificate of a bound in words: the argument of its witness, the sum over its links, and the bound."""

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from functools import singledispatch
from typing import NamedTuple

from ...schedules import (
    BROADCAST,
    REDUCE,
    Bound,
    Cut,
    CutDual,
    LengthDual,
    Partition,
    RankCuts,
    TreeDual,
    TreePartition,
    Witness,
)
from ...schedules.bounds.witness import Crossing, LinkDuals
from ...support.formatting import MAX_NAMES, abbreviated_names, count_text, exact, rate_text
from ..plan_tables import witness_view

Pair = tuple[str, str]
Pairs = tuple[Pair, ...]

WITHOUT_CODING = "This holds for schedules that send, copy and reduce data, without network coding."


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


class _Argument(NamedTuple):
    """What differs between kinds of witnesses."""

    title: str
    reasons: tuple[str, ...]
    counted: str
    duals: Mapping[Pair, Fraction] | None = None  # What each link's GB/s count; None for 1


def certificate(bound: Bound) -> Certificate:
    """Return the certificate of a bound."""
    topology, counted = bound.topology, witness_view(bound).links
    links = tuple((link.tail, link.head) for link in topology.links if (link.tail, link.head) in counted)
    crossing = bound.witness.crossing(topology, bound.collective, bound.weights)
    argument = _argument(bound.witness, bound, count_text(len(links), "link"), crossing)
    duals = dict.fromkeys(links, Fraction(1)) if argument.duals is None else argument.duals
    counts = Counter((dual, topology.link(*pair).bandwidth) for pair, dual in duals.items() if dual)
    terms = tuple(Term(counts[dual, bandwidth], bandwidth, dual) for dual, bandwidth in sorted(counts, reverse=True))
    weighted = argument.duals is not None
    return Certificate(*argument[:3], terms, weighted, links, _divisions(bound, crossing))


@singledispatch
def _argument(witness: Witness, bound: Bound, links: str, crossing: Crossing) -> _Argument:  # noqa: ARG001
    """Argument of any witness: its reason, and what it says of links; `links` is how many there are, in words."""
    reasons = (f"{witness.reason(bound.topology, bound.collective)}.",)
    weights = witness.link_weights(bound.topology, bound.collective)
    return _Argument("A bound", reasons, "bandwidth times weight", weights)


@_argument.register(Cut)
def _of_cut(cut: Cut, bound: Bound, links: str, crossing: Crossing) -> _Argument:
    side = "ingress" if bound.collective.direction == "reduce" else "egress"
    reasons = (
        _line_words(bound, cut),
        _crossing_words(bound, crossing.amount),
        f"The {side} of the cut is {rate_text(crossing.bandwidth)}, over {links}.",
    )
    return _Argument("Bottleneck cut", reasons, f"{side} of the cut")


def _line_words(bound: Bound, cut: Cut) -> str:
    """Describe the inside of a cut, or its outside if that is shorter."""
    topology = bound.topology
    sides = []
    for wanted in (True, False):
        ranks = [node for node in topology.compute_nodes if (node in cut.nodes) is wanted]
        switches = [node for node in topology.switch_nodes if (node in cut.nodes) is wanted]
        names = ", and ".join(filter(None, (abbreviated_names(ranks), abbreviated_names(switches))))
        sides.append((ranks, switches, names))
    (ranks, switches, names), (others, _, rest) = sides
    total = len(topology.switch_nodes)
    some = f"all {total}" if len(switches) == total else f"{len(switches)} of the {total}"
    beside = f" and {some} switches" if total > 1 else f" and {abbreviated_names(switches)}" if switches else ""
    inside = f"Take the cut around {len(ranks)} of the {topology.num_ranks} ranks{beside}"
    return f"{inside}: all but {rest}." if len(others) < len(ranks) else f"{inside}: {names}."


def _crossing_words(bound: Bound, amount: Fraction) -> str:
    """Describe the data that must cross a cut in any schedule."""
    collective, units = bound.collective, _units(bound, amount)
    if collective.has_two_phases:
        why = "Ranks outside need sums to which ranks inside contribute"
        return f"{why}, so the size of all data must leave the cut: {units}."
    if collective.in_pairs:
        return f"The traffic from ranks inside to ranks outside must leave the cut: {units}."
    if collective is BROADCAST:
        return "The root is inside and some ranks are outside, so all data of the root must leave the cut."
    if collective is REDUCE:
        why = "The root is inside, so the contributions of ranks outside must enter the cut"
        return f"{why}: at least the size of the result."
    if collective.reduces:
        why = "Ranks outside contribute to the shards reduced inside"
        return f"{why}, so the size of these must enter the cut: {units}."
    why = "Every rank outside needs the shards of all ranks inside"
    return f"{why}, so these must leave the cut at least once: {units}."


@_argument.register(RankCuts)
def _of_rank_cuts(witness: RankCuts, bound: Bound, links: str, crossing: Crossing) -> _Argument:  # noqa: ARG001
    topology = bound.topology
    entering = bool(topology.multicast)
    widths = [cut.entering_bandwidth(topology) if entering else cut.bandwidth(topology) for cut in witness.cuts]
    widest = topology.compute_nodes[widths.index(crossing.bandwidth)]
    verb, side = ("receive", "ingress") if entering else ("send", "egress")
    most = f"The largest {side} is that of {widest}, {rate_text(crossing.bandwidth)}, so no rank can {verb} faster."
    least = f"In an allreduce of N ranks some rank must {verb} 2 (N − 1) / N times all data"
    reasons = (
        f"For each of the {topology.num_ranks} ranks, take a cut that contains no other rank.",
        most,
        f"{least}: {_units(bound, crossing.amount)}. {WITHOUT_CODING}",
    )
    return _Argument("Cuts around single ranks", reasons, f"{side} of the widest cut")


@_argument.register(Partition)
def _of_partition(witness: Partition, bound: Bound, links: str, crossing: Crossing) -> _Argument:
    members = [[node for node in bound.topology.compute_nodes if node in part] for part in witness.parts]
    named = [abbreviated_names(ranks) for ranks in members if ranks]
    more = f" | and {len(named) - MAX_NAMES} more" if len(named) > MAX_NAMES else ""
    units = _units(bound, crossing.amount)
    arrivals = "Each byte needs p − 1 arrivals at a part until one part has its sum, and p − 1 more until all have it"
    reasons = (
        f"Partition the network; p = {len(named)} parts contain ranks: {' | '.join(named[:MAX_NAMES])}{more}.",
        f"{arrivals}: {2 * (len(named) - 1)} times all data, which is {units}. {WITHOUT_CODING}",
        f"The ingress of these parts is {rate_text(crossing.bandwidth)}, over {links}.",
    )
    return _Argument("Partition of the network", reasons, "ingress of the parts with ranks")


@_argument.register(TreePartition)
def _of_tree_partition(witness: TreePartition, bound: Bound, links: str, crossing: Crossing) -> _Argument:
    ranks = set(bound.topology.compute_nodes)
    parts = sum(bool(part & ranks) for part in witness.parts)
    crossings = f"Reduce trees and broadcast trees leave and enter these parts {4 * (parts - 1)} times"
    reasons = (
        f"Partition the network; p = {parts} parts contain ranks.",
        f"{crossings}, less what switches outside of them save by branching: {_units(bound, crossing.amount)}.",
        f"The parts give out and take in {rate_text(crossing.bandwidth)} together, over {links}.",
    )
    return _Argument("Partition for trees", reasons, "ingress and egress of the parts with ranks")


@_argument.register(LinkDuals)
def _of_duals(witness: LinkDuals, bound: Bound, links: str, crossing: Crossing) -> _Argument:
    what = "length" if isinstance(witness, LengthDual) else "value"
    assigned = f"Assign the dual values below to the bandwidth of {links}, and 0 to all others."
    hops = "Data travels in hops between ranks; the dual values of all ranks for one hop sum to at most"
    arguments = {
        LengthDual: (
            f"Assign the dual lengths below to {links}, and length 0 to all others.",
            "On every path from one rank to another, the lengths sum to at least the shortest distance.",
            f"Over all pairs, traffic times distance is {exact(crossing.amount)}: what each unit of rate uses.",
        ),
        CutDual: (
            f"{assigned} They come from a linear program, and were verified without it.",
            f"{hops} those of the links on its cheapest path.",
            f"Weighted by dual values, {bound.scope} use bandwidth of {exact(crossing.amount)} per unit of rate.",
        ),
        TreeDual: (
            assigned,
            "The bound is about trees that branch at ranks and at switches that multicast or aggregate.",
            f"The cheapest of these use bandwidth worth {exact(crossing.amount)} per unit of rate.",
        ),
    }
    counted = "bandwidth times length" if what == "length" else "bandwidth times dual value"
    reasons = (*arguments[type(witness)], f"All links together offer {counted}: {exact(crossing.bandwidth)}.")
    duals = {(tail, head): dual for tail, head, dual in witness.links}
    return _Argument(f"Dual {what}s of links", reasons, counted, duals)


def _divisions(bound: Bound, crossing: Crossing) -> tuple[str, ...]:
    """Derive the bounds on time and bandwidth from the sums."""
    divisors = (
        str(each) if each.denominator == 1 else f"({each})" for each in (crossing.bandwidth, bound.inverse_rate)
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


def _units(bound: Bound, amount: Fraction) -> str:
    """Describe an amount of data in units."""
    if bound.collective.in_pairs:
        return f"{amount} units of traffic" if bound.weights else f"{amount} times the data from one rank to another"
    if bound.weights:
        return f"shards of total weight {amount}"
    return f"{amount} {'shard' if amount == 1 else 'shards'} (all data: {bound.topology.num_ranks} shards)"
