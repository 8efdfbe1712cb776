"""Masks of the links on which a shard can arrive along shortest paths, for all ranks at once.

A shard of rank v is d(v, u) hops away from rank u.  In breadth-first order it can arrive on every link (w, u) with
d(v, u) = d(v, w) + 1: these links are the *mask* of v at u.  Sources with the same mask are interchangeable and form a
*group*; there are at most as many groups as sets of links.

Source: the direct-connect paper, Definition 15 and linear program (1).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel, kernel_with
from ..flows.max_flow import check_capacities

HopArray = npt.NDArray[np.int16]
NodeArray = npt.NDArray[np.int32]

WORD = 62  # links per word of a mask, so that words are never negative
MULTIPLIER = 0x9E3779B97F4A7C1  # an odd number of many bits: 2^60 over the golden ratio


class Intake(NamedTuple):
    """The links into each rank, and all sources by distance."""

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
        """All of which are sources."""
        return len(self.hops)

    @property
    def diameter(self) -> int:
        """Most hops between two ranks."""
        return int(self.starts.shape[1]) - 2


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


def max_in_degree(network: Intake) -> int:
    """Return the largest in-degree."""
    return int(np.diff(network.first).max())


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
