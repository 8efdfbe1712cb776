"""Exact minimum of the maximum link load per step of a breadth-first broadcast, by subsets or by Newton's method.

Of the shards that arrive at rank u from distance t, c(S) can use links of the set S only, whose bandwidth is b(S).  The
optimum of linear program (1) of the direct-connect paper is U(u, t) = max c(S) / b(S) over nonempty S (Theorem 19);
the maximizing set is the certificate.  Both methods use integers; see docs/explanation/algorithms.md.

With shards of P indivisible chunks, a link of bandwidth b carries ``floor(b T)`` of them in time T, so over every set S
these numbers must sum to at least the chunks that only links of S can carry.  By max-flow min-cut that is also
sufficient: integer program (13) needs no branching.  With equal bandwidths, ``T = ceil(P U)``.

Shards are divided over links by maximum flows.  Those of different ranks and distances are independent, and the parts
of a shard are interchangeable: the sender of a part has the whole shard, and so does the receiver in the end
(Theorem 14).  So a shard is split at as few positions as the flow requires, and every link gets an interval.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ...errors import SolverError, UnsupportedError
from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel, kernel_with
from ..flows.max_flow import FlowNetwork, augment, check_capacities
from .link_masks import WORD, Groups, Intake, groups_at, max_in_degree, shards_within, usable_links


class Shares(NamedTuple):
    """Intervals of shards, each with the link that it comes over; in the order of steps."""

    steps: IntArray  # int64 (sends,): counted from 0: the distance of the source from the receiving rank, less one
    sources: IntArray  # int64 (sends,): whose shard
    links: IntArray  # int64 (sends,): over which link, by the numbers given to `intake`
    lower: IntArray  # int64 (sends,): the first chunk
    upper: IntArray  # int64 (sends,): one past the last chunk


def share_out(network: Intake, chunks: int, capacities: IntArray) -> Shares:
    """Divide all shards over links within the capacities of the links. Shapes: `capacities` int64 (diameter, links)."""
    check_capacities(chunks * network.num_ranks**2)
    # Capping at the total changes nothing and keeps sums small.
    counts, *columns = _shared_out(network, chunks, np.minimum(capacities, chunks * network.num_ranks))
    if counts[-1] < 0:
        raise SolverError(f"the links cannot carry all data that arrives in {len(counts)} hops")
    return Shares(np.repeat(np.arange(len(counts)), counts), *columns)


@kernel_with(lambda network, *_: 10 * network.num_ranks * len(network.tails))
def _shared_out(
    network: Intake, chunks: int, capacities: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray]:
    """Return sends per step, sources, links, first chunks and ends; a last number of -1 means too little capacity."""
    ranks, size = len(network.hops), 0
    counts = np.zeros(len(capacities), dtype=np.int64)
    table = np.empty((4, ranks * ranks), dtype=np.int64)
    for step in range(len(capacities)):
        before = size
        for rank in range(ranks):
            if network.starts[rank, step + 1] == network.starts[rank, step + 2]:
                continue
            begin, end = network.first[rank], network.first[rank + 1]
            groups = groups_at(network, rank, step + 1)
            shares, violated = balance(groups, chunks, capacities[step, begin:end])
            if violated.any():
                counts[step] = -1
                return counts[: step + 1], table[0, :0], table[1, :0], table[2, :0], table[3, :0]
            max_rows = len(groups.members) + shares.size
            if size + max_rows > table.shape[1]:
                wider = np.empty((4, (size + max_rows) * 9 // 8), dtype=np.int64)
                wider[:, :size] = table[:, :size]
                table = wider
            size = _write_intervals(groups, shares, chunks, network.links[begin:end], table, size)
        counts[step] = size - before
    return counts, table[0, :size], table[1, :size], table[2, :size], table[3, :size]


@kernel
def _write_intervals(groups: Groups, shares: IntArray, chunks: int, links: IntArray, table: IntArray, size: int) -> int:
    """Lay the shards of each group end to end, and split them at the boundaries between the shares of links."""
    for group in range(len(shares)):
        place, done = groups.starts[group], 0
        for link in range(len(links)):
            left = shares[group, link]
            while left > 0:
                part = min(left, chunks - done)
                table[0, size], table[1, size] = groups.members[place], links[link]
                table[2, size], table[3, size] = done, done + part
                size += 1
                left -= part
                done += part
                if done == chunks:
                    place, done = place + 1, 0
    return size


@kernel
def balance(groups: Groups, units: int, capacities: IntArray) -> tuple[IntArray, BoolArray]:
    """Send `units` of every shard over links of some capacities, by maximum flow.

    Returns shares, (groups, links), and a set of links that cannot take all that only they bring: empty if all fits.
    """
    count, degree = len(groups.masks), len(capacities)
    offers = 0
    for mask in groups.masks:
        for link in range(degree):
            offers += mask[link // WORD] >> (link % WORD) & 1
    # A flow network from groups over links that can bring them, to a sink.
    source, sink = count + degree, count + degree + 1
    nodes = count + degree + 2
    heads = np.empty(2 * (count + degree + offers), dtype=np.int64)
    following, residual = np.empty_like(heads), np.zeros_like(heads)
    network = FlowNetwork(np.full(nodes, -1, dtype=np.int64), following, heads, residual)
    arc, total = 0, 0
    for link in range(degree):
        arc = _add_arc(network, arc, count + link, sink, capacities[link])
    for group in range(count):
        supply = units * (groups.starts[group + 1] - groups.starts[group])
        total += supply
        arc = _add_arc(network, arc, source, group, supply)
        for link in range(degree):
            if groups.masks[group, link // WORD] >> (link % WORD) & 1:
                arc = _add_arc(network, arc, group, count + link, supply)
    # The shares are what a maximum flow sends; without one, its cut is the set of links.
    scratch = np.empty((4, nodes), dtype=np.int64)
    pushed = augment(network, residual, source, sink, total, scratch)
    shares = np.zeros((count, degree), dtype=np.int64)
    violated = np.zeros(degree, dtype=np.bool_)
    if pushed < total:
        violated[:] = scratch[0, count:source] < 0
        return shares, violated
    for group in range(count):
        arc = network.first_arc[group]
        while arc >= 0:
            if arc & 1 == 0:
                shares[group, heads[arc] - count] = residual[arc ^ 1]
            arc = following[arc]
    return shares, violated


@kernel
def _add_arc(network: FlowNetwork, arc: int, tail: int, head: int, capacity: int) -> int:
    """Add arc `arc` and its reverse ``arc + 1``, and return the next free number."""
    first, following, heads, residual = network
    heads[arc], heads[arc + 1], residual[arc] = head, tail, capacity
    following[arc], first[tail] = first[tail], arc
    following[arc + 1], first[head] = first[head], arc + 1
    return arc + 2


MAX_LINKS_FOR_SUBSETS = 10
LARGEST_TABLE = 20  # in-degree beyond which a table of all sets is too large


class BusiestSet(NamedTuple):
    """The bottleneck set of links into one rank, which determines the time of a step."""

    rank: int  # that the links lead to
    shards: int  # shards that only these links can carry: c(S)
    width: int  # their total bandwidth over the network's common divisor: b(S)
    links: IntArray  # their numbers, as given to `intake`

    @property
    def load(self) -> Fraction:
        """Shards per unit of bandwidth: the largest U(u, t) of the distance."""
        return Fraction(self.shards, self.width)


def busiest_sets(network: Intake, ranks: IntArray | None = None) -> tuple[BusiestSet, ...]:
    """Find the bottleneck set of each distance by the method that suits the network."""
    is_narrow = max_in_degree(network) <= MAX_LINKS_FOR_SUBSETS
    return (loads_by_subsets if is_narrow else loads_by_newton)(network, ranks)


def loads_by_subsets(network: Intake, ranks: IntArray | None = None) -> tuple[BusiestSet, ...]:
    """Find the bottleneck sets by enumeration; parameters as for `busiest_sets`."""
    if (degree := max_in_degree(network)) > LARGEST_TABLE:
        raise UnsupportedError(
            f"{degree} links lead into a rank; expected at most {LARGEST_TABLE} to look at all sets of them"
        )
    return _as_sets(network, *_by_subsets(network, _as_rank_array(network, ranks)))


def loads_by_newton(network: Intake, ranks: IntArray | None = None) -> tuple[BusiestSet, ...]:
    """Find the bottleneck sets by maximum flows; parameters as for `busiest_sets`."""
    return _as_sets(network, *_by_newton(network, _as_rank_array(network, ranks)))


METHODS: dict[str, Callable[[Intake], tuple[BusiestSet, ...]]] = {
    "auto": busiest_sets,
    "subsets": loads_by_subsets,
    "newton": loads_by_newton,
}
"""By name."""


def _as_rank_array(network: Intake, ranks: IntArray | None) -> IntArray:
    return np.arange(network.num_ranks) if ranks is None else np.asarray(ranks, dtype=np.int64)


def _as_sets(network: Intake, best: IntArray, members: BoolArray) -> tuple[BusiestSet, ...]:
    sets = []
    for (rank, shards, width), inside in zip(best.tolist(), members, strict=True):
        if shards:
            begin, end = network.first[rank : rank + 2]
            sets.append(BusiestSet(rank, shards, width, network.links[begin:end][inside[: end - begin]]))
    return tuple(sets)


@kernel_with(
    lambda network, ranks: (
        len(ranks) * (2 * len(network.tails) + (network.diameter << int(np.diff(network.first).max())))
    )
)
def _by_subsets(network: Intake, ranks: IntArray) -> tuple[IntArray, BoolArray]:
    """Return, for each distance, rank, c(S) and b(S) of the bottleneck set S, and its members."""
    best, members = _nothing_yet(network)
    for rank in ranks:
        offset = network.first[rank]
        degree = network.first[rank + 1] - offset
        widths = np.zeros(1 << degree, dtype=np.int64)
        for link in range(degree):
            for subset in range(1 << link):
                widths[subset | 1 << link] = widths[subset] + network.widths[offset + link]
        for distance in range(1, len(best) + 1):
            if network.starts[rank, distance] == network.starts[rank, distance + 1]:
                break
            inside = _shards_inside(network, rank, distance, degree)
            busiest, row = -1, best[distance - 1]
            for subset in range(1, 1 << degree):
                if inside[subset] * row[2] > row[1] * widths[subset]:
                    row[0], row[1], row[2] = rank, inside[subset], widths[subset]
                    busiest = subset
            if busiest >= 0:
                for link in range(degree):
                    members[distance - 1, link] = busiest >> link & 1
    return best, members


@kernel
def _nothing_yet(network: Intake) -> tuple[IntArray, BoolArray]:
    diameter = network.starts.shape[1] - 2
    best = np.zeros((diameter, 3), dtype=np.int64)
    best[:, 2] = 1
    return best, np.zeros((diameter, (network.first[1:] - network.first[:-1]).max()), dtype=np.bool_)


@kernel
def _shards_inside(network: Intake, rank: int, distance: int, degree: int) -> IntArray:
    """Count, for each set of links, the sources whose mask it contains: the zeta transform of a histogram."""
    inside = np.zeros(1 << degree, dtype=np.int64)
    offset = network.first[rank]
    for place in range(network.starts[rank, distance], network.starts[rank, distance + 1]):
        source, mask = network.sources[rank, place], 0
        for link in range(degree):
            if network.hops[network.tails[offset + link], source] == distance - 1:
                mask |= 1 << link
        inside[mask] += 1
    for link in range(degree):
        for high in range(0, 1 << degree, 2 << link):
            for subset in range(high, high + (1 << link)):
                inside[subset + (1 << link)] += inside[subset]
    return inside


@kernel_with(lambda network, ranks: 10 * len(ranks) * len(network.tails))
def _by_newton(network: Intake, ranks: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the same as `_by_subsets`; the bound of one rank starts the next."""
    best, members = _nothing_yet(network)
    for rank in ranks:
        widths = network.widths[network.first[rank] : network.first[rank + 1]]
        for distance in range(1, len(best) + 1):
            if network.starts[rank, distance] == network.starts[rank, distance + 1]:
                break
            groups, row = groups_at(network, rank, distance), best[distance - 1]
            violated = usable_links(groups, len(widths))
            while True:
                shards, width = shards_within(groups, violated), (widths * violated).sum()
                # At first this is the set of all links, which need not be busier than what other ranks have.
                if shards * row[2] > row[1] * width:
                    row[0], row[1], row[2] = rank, shards, width
                    members[distance - 1] = False
                    members[distance - 1, : len(widths)] = violated
                _, violated = balance(groups, row[2], widths * row[1])
                if not violated.any():
                    break
    return best, members


def least_chunked_times(network: Intake, sets: tuple[BusiestSet, ...], chunks: int) -> tuple[Fraction, ...]:
    """Find lower bounds of the step times, which are attained if all bandwidths are equal."""
    check_capacities(2 * chunks * network.num_ranks * int(network.widths.sum()))
    times = (time_to_bring(network.widths[_places(network, busiest)], chunks * busiest.shards) for busiest in sets)
    return tuple(Fraction(*time) for time in times)


def chunked_times(network: Intake, sets: tuple[BusiestSet, ...], chunks: int) -> tuple[Fraction, ...]:
    """Find the step times; parameters as for `least_chunked_times`."""
    lower_bounds = least_chunked_times(network, sets, chunks)
    if (network.widths == 1).all():
        return lower_bounds
    times = np.array([(time.numerator, time.denominator) for time in lower_bounds], dtype=np.int64)
    _raise_times(network, chunks, times)
    return tuple(Fraction(*time) for time in times.tolist())


def chunk_capacities(network: Intake, times: Sequence[Fraction]) -> IntArray:
    """Count the whole chunks that each link can bring in each step, int64 (diameter, links), for `share_out`."""
    check_capacities(*(int(network.widths.max()) * time.numerator for time in times))
    capacities = np.empty((len(times), len(network.widths)), dtype=np.int64)
    for row, time in zip(capacities, times, strict=True):
        row[:] = network.widths * time.numerator // time.denominator
    return capacities


def _places(network: Intake, busiest: BusiestSet) -> IntArray:
    """Return the indices of the links of a set in the arrays of the network."""
    begin, end = network.first[busiest.rank : busiest.rank + 2]
    places: IntArray = begin + np.flatnonzero(np.isin(network.links[begin:end], busiest.links))
    return places


@kernel
def time_to_bring(widths: IntArray, chunks: int) -> tuple[int, int]:
    """Return the least time, as a fraction, in which links of given bandwidths together carry so many chunks."""
    total = widths.sum()
    above, below = chunks, total
    while True:
        brought = 0
        for width in widths:
            brought += width * above // below
        if brought >= chunks:
            return above, below
        # The next time at which some link completes a chunk.
        soonest, unit = -1, 1
        for width in widths:
            count = width * above // below + 1
            if soonest < 0 or count * unit < soonest * width:
                soonest, unit = count, width
        above, below = soonest, unit


@kernel_with(lambda network, *_: 10 * network.num_ranks * len(network.tails))
def _raise_times(network: Intake, chunks: int, times: IntArray) -> None:
    """Raise the time of each distance, a fraction in `times`, until all chunks fit into all ranks."""
    for rank in range(len(network.hops)):
        widths = network.widths[network.first[rank] : network.first[rank + 1]]
        for distance in range(1, len(times) + 1):
            if network.starts[rank, distance] == network.starts[rank, distance + 1]:
                break
            groups, time = groups_at(network, rank, distance), times[distance - 1]
            while True:
                _, violated = balance(groups, chunks, widths * time[0] // time[1])
                if not violated.any():
                    break
                time[0], time[1] = time_to_bring(widths[violated], chunks * shards_within(groups, violated))
