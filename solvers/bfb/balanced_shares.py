"""Division of shards over links in a breadth-first broadcast, by maximum flows.

The flows of different ranks and distances are independent, and the parts of a shard are interchangeable: the sender of
a part has the whole shard, and so does the receiver in the end (direct-connect paper, Theorem 14).  So a shard is split
at as few positions as the flow requires, and every link gets an interval.
"""

from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support.arrays import BoolArray, IntArray
from ...support.compiling.kernels import kernel
from ..flow.max_flow import FlowNetwork, augment, check_capacities
from .link_masks import WORD, Groups, Intake, groups_at


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


@kernel
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
            most = len(groups.members) + shares.size
            if size + most > table.shape[1]:
                wider = np.empty((4, (size + most) * 9 // 8), dtype=np.int64)
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
