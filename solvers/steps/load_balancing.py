"""Exact minimum of the maximum link load per step of a breadth-first broadcast, and divisions of shards that have it.

The links on which a shard can arrive in breadth-first order are its *mask*; shards with one mask are a *group*.  With
c(S) the shards whose mask is in a set S of links, the load is max c(S) / b(S): direct-connect paper, Definition 15,
Theorem 19.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import SolverError, UnsupportedError
from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel, kernel_with
from ..flows.max_flow import FlowNetwork, augment, check_capacities

HopArray = npt.NDArray[np.int16]
NodeArray = npt.NDArray[np.int32]

WORD = 62  # links per word of a mask, so that words are never negative
MULTIPLIER = 0x9E3779B97F4A7C1  # an odd number of many bits: 2^60 over the golden ratio


class Intake(NamedTuple):
    """The links into each rank, and all sources by distance; a shard of v is ``hops[u, v]`` hops away from u."""

    # int64 (ranks + 1,): the links into rank u are at ``first[u]`` to ``first[u + 1] - 1`` of the next three arrays
    first: IntArray
    tails: IntArray  # int64 (links,): where each link comes from
    widths: IntArray  # int64 (links,): its bandwidth without the links' common divisor
    links: IntArray  # int64 (links,): its number for the caller
    hops: HopArray  # int16 (ranks, ranks): ``[u, v]``: fewest links from source v to rank u, -1 if none lead there
    # int32 (ranks, ranks): ``[u]``: all ranks in the order of their distance to u; u itself comes first
    sources: NodeArray
    # int32 (ranks, diameter + 2): those t hops away are ``sources[u, starts[u, t]:starts[u, t + 1]]``
    starts: NodeArray
    divisor: int  # the greatest common divisor of the bandwidths

    @property
    def num_ranks(self) -> int:
        """All ranks are sources."""
        return len(self.hops)

    @property
    def diameter(self) -> int:
        """Most hops between two ranks."""
        return int(self.starts.shape[1]) - 2

    @property
    def in_degree(self) -> int:
        """Most links into a rank."""
        return int(np.diff(self.first).max())


class Groups(NamedTuple):
    """The sources at one distance from a rank, by mask."""

    # int64 (groups, words): bit i of word j: whether link ``62 j + i`` into the rank can bring the shards of this group
    masks: IntArray
    starts: IntArray  # int64 (groups + 1,): the sources of group g are ``members[starts[g]:starts[g + 1]]``
    members: IntArray  # source numbers


def intake(num_ranks: int, tails: IntArray, heads: IntArray, widths: IntArray) -> Intake:
    """Find all distances; arrange links and sources by the rank they lead to. Shapes: `widths` int64 (links,)."""
    divisor = int(np.gcd.reduce(widths)) if len(widths) else 1
    order = np.lexsort((tails, heads))
    first = np.zeros(num_ranks + 1, dtype=np.int64)
    np.cumsum(np.bincount(heads, minlength=num_ranks), out=first[1:])
    ordered = np.asarray(tails[order], dtype=np.int64), np.asarray(widths[order], dtype=np.int64) // divisor
    check_capacities(2 * num_ranks * sum(ordered[1].tolist()))
    hops, sources = _distances(num_ranks, first, ordered[0])
    return Intake(first, *ordered, order, hops, sources, _starts(hops, int(hops.max())), divisor)


@kernel_with(lambda num_ranks, _, tails: num_ranks * len(tails))
def _distances(num_ranks: int, first: IntArray, tails: IntArray) -> tuple[HopArray, NodeArray]:
    """Run backward BFS from every rank; -1 for unreachable sources."""
    hops = np.full((num_ranks, num_ranks), -1, dtype=np.int16)
    orders = np.zeros((num_ranks, num_ranks), dtype=np.int32)
    for rank in range(num_ranks):
        away, queue = hops[rank], orders[rank]
        away[rank] = 0
        queue[0] = rank
        done, reached = 0, 1
        while done < reached:
            node = queue[done]
            done += 1
            for place in range(first[node], first[node + 1]):
                tail = tails[place]
                if away[tail] < 0:
                    away[tail] = away[node] + 1
                    queue[reached] = tail
                    reached += 1
    return hops, orders


@kernel
def _starts(hops: HopArray, diameter: int) -> NodeArray:
    starts = np.zeros((len(hops), diameter + 2), dtype=np.int32)
    for rank in range(len(hops)):
        for distance in hops[rank]:
            starts[rank, distance + 1] += 1
        for distance in range(diameter + 1):
            starts[rank, distance + 1] += starts[rank, distance]
    return starts


@kernel
def groups_at(network: Intake, rank: int, distance: int) -> Groups:
    """Group the sources at one distance from a rank by the links that can bring their shards."""
    begin, end = network.starts[rank, distance], network.starts[rank, distance + 1]
    offset = network.first[rank]
    degree = network.first[rank + 1] - offset
    words = (degree + WORD - 1) // WORD
    masks = np.zeros((end - begin, words), dtype=np.int64)
    group_of = np.empty(end - begin, dtype=np.int64)
    counts = np.zeros(end - begin + 1, dtype=np.int64)
    # A hash table of masks, at most half full.
    size = 2
    while size < 2 * (end - begin):
        size *= 2
    table = np.full(size, -1, dtype=np.int64)
    groups = 0
    for place in range(end - begin):
        source = network.sources[rank, begin + place]
        mask = masks[groups]  # overwritten by the next source, if a group has this mask already
        mask[:] = 0
        for link in range(degree):
            if network.hops[network.tails[offset + link], source] == distance - 1:
                mask[link // WORD] |= 1 << (link % WORD)
        slot = _slot(mask, masks, table)
        if table[slot] < 0:
            table[slot] = groups
            groups += 1
        group_of[place] = table[slot]
        counts[table[slot] + 1] += 1
    # Sort the sources by group.
    starts = np.cumsum(counts[: groups + 1])
    members = np.empty(end - begin, dtype=np.int64)
    filled = starts[:-1].copy()
    for place in range(end - begin):
        group = group_of[place]
        members[filled[group]] = network.sources[rank, begin + place]
        filled[group] += 1
    return Groups(masks[:groups], starts, members)


@kernel
def _slot(mask: IntArray, masks: IntArray, table: IntArray) -> int:
    """Return the slot of a mask in an open-addressing hash table."""
    key = 0
    for word in mask:
        key = (key ^ word) * MULTIPLIER
        key ^= key >> 29
    slot = key & (len(table) - 1)
    while table[slot] >= 0 and (masks[table[slot]] != mask).any():
        slot = (slot + 1) & (len(table) - 1)
    return slot


@kernel
def usable_links(groups: Groups, degree: int) -> BoolArray:
    """Mark the links into a rank that can carry a shard from this distance."""
    usable = np.zeros(degree, dtype=np.bool_)
    for mask in groups.masks:
        for link in range(degree):
            if mask[link // WORD] >> (link % WORD) & 1:
                usable[link] = True
    return usable


@kernel
def shards_within(groups: Groups, allowed: BoolArray) -> int:
    """Count the shards that only links of a set can carry."""
    shards = 0
    for group in range(len(groups.masks)):
        within = True
        for link in range(len(allowed)):
            if groups.masks[group, link // WORD] >> (link % WORD) & 1 and not allowed[link]:
                within = False
                break
        if within:
            shards += groups.starts[group + 1] - groups.starts[group]
    return shards


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


MAX_LINKS_FOR_SUBSETS, LARGEST_TABLE = 10, 20  # in-degrees up to which enumeration is quick, and possible


class BusiestSet(NamedTuple):
    """The bottleneck set of links into one rank, which determines the time of a step; its load is c(S) / b(S)."""

    rank: int  # that the links lead to
    shards: int  # shards that only these links can carry: c(S)
    width: int  # their total bandwidth over the network's common divisor: b(S)
    links: IntArray  # their numbers, as given to `intake`

    @property
    def load(self) -> Fraction:
        """Shards per unit of bandwidth: the largest U(u, t) of the distance."""
        return Fraction(self.shards, self.width)


def busiest_sets(
    network: Intake, ranks: IntArray | None = None, *, method: Literal["auto", "subsets", "newton"] = "auto"
) -> tuple[BusiestSet, ...]:
    """Find the bottleneck set of each distance, by enumeration, by maximum flows, or as suits the network."""
    degree = network.in_degree
    if method == "subsets" and degree > LARGEST_TABLE:
        raise UnsupportedError(
            f"{degree} links lead into a rank; expected at most {LARGEST_TABLE} to look at all sets of them"
        )
    is_narrow = method == "subsets" or (method == "auto" and degree <= MAX_LINKS_FOR_SUBSETS)
    numbers = np.arange(network.num_ranks) if ranks is None else np.asarray(ranks, dtype=np.int64)
    sets = []
    best, members = (_by_subsets if is_narrow else _by_newton)(network, numbers)
    for (rank, shards, width), inside in zip(best.tolist(), members, strict=True):
        if shards:
            links = network.links[network.first[rank] : network.first[rank + 1]]
            sets.append(BusiestSet(rank, shards, width, links[inside[: len(links)]]))
    return tuple(sets)


@kernel_with(lambda network, ranks: len(ranks) * (2 * len(network.tails) + (network.diameter << network.in_degree)))
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
    times = []
    for busiest in sets:
        into = slice(*network.first[busiest.rank : busiest.rank + 2])
        widths = network.widths[into][np.isin(network.links[into], busiest.links)]
        times.append(Fraction(*time_to_bring(widths, chunks * busiest.shards)))
    return tuple(times)


def chunked_times(network: Intake, sets: tuple[BusiestSet, ...], chunks: int) -> tuple[Fraction, ...]:
    """Find the step times; parameters as for `least_chunked_times`."""
    lower_bounds = least_chunked_times(network, sets, chunks)
    times = np.array([(time.numerator, time.denominator) for time in lower_bounds], dtype=np.int64)
    if (network.widths != 1).any():
        _raise_times(network, chunks, times)
    return tuple(Fraction(*time) for time in times.tolist())


def chunk_capacities(network: Intake, times: Sequence[Fraction]) -> IntArray:
    """Count the whole chunks that each link can bring in each step, int64 (diameter, links), for `share_out`."""
    check_capacities(*(int(network.widths.max()) * time.numerator for time in times))
    capacities = np.empty((len(times), len(network.widths)), dtype=np.int64)
    for row, time in zip(capacities, times, strict=True):
        row[:] = network.widths * time.numerator // time.denominator
    return capacities


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
