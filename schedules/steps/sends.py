"""`Sends`, the one form of all that moves in steps or along paths, and what follows from it: loads, waits, transfers.

A send waits for all sends of earlier steps that bring its sender some of the same chunks (reduce-scatter: reversed).
In an allreduce a transfer without links, from the root to itself, waits for all contributions of the reduction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from ...errors import CapacityOverflowError, UnsupportedError
from ...support.arrays import BoolArray, IntArray, joined_rows
from ...support.validation import shown
from ...topologies import Topology
from ..collective import Direction
from ..fields import as_rows
from ..transfers import Part, Transfers, concatenate, in_direction, path_links, root_transfers

EVERYONE = -1  # In place of a rank: all of them
MAX_CHUNKS = 2**62
MAX_STEPS = 2**20
MAX_WAITS = 2**27  # pairs of sends that are compared, 8 bytes and more each
MAX_LOADS = 2**32  # steps times links, 8 bytes each: more than any machine has memory for in one array


@dataclass(frozen=True, eq=False)
class Sends:
    """Intervals of chunks of items that pass paths in synchronous steps, and who has each item first and in the end.

    Items are the shards of ranks, the parts of ranks for each other, or vectors of which every rank has one and which
    are added up.  Of direction "reduce", all of it happens backwards.  Path ``p`` is
    ``path_nodes[path_starts[p]:path_starts[p + 1]]``.
    """

    num_ranks: int
    sizes: IntArray  # int64 (items,): chunks of each
    owners: IntArray  # int64 (items,): the rank that has it first; EVERYONE has one of the vectors that are added up
    targets: IntArray  # int64 (items,): the rank that needs it in the end, or EVERYONE
    steps: IntArray  # int64 (sends,)
    items: IntArray  # int64 (sends,)
    lower: IntArray  # int64 (sends,)
    upper: IntArray  # int64 (sends,): chunks ``lower``, ..., ``upper - 1`` of the item
    routes: IntArray  # int64 (sends,): numbers of paths
    path_starts: IntArray  # int64 (paths + 1,)
    path_nodes: IntArray
    direction: Direction = "broadcast"
    adds: BoolArray | None = None  # bool (sends,): whether the receiver adds it up; None where nothing is

    @classmethod
    def along_paths(
        cls, traffic: IntArray, weights: IntArray, starts: IntArray, nodes: IntArray, hop_steps: IntArray
    ) -> Sends:
        """Send parts of pairs, of `traffic` chunks, (ranks, ranks), over paths of `weights` chunks through ranks.

        A path is a send from each rank on it to the next.  The paths of a pair take its chunks in turn.  Shapes:
        `weights` (paths,); `starts` (paths + 1,); `hop_steps` (hops,), the same from one rank to the next.
        """
        ranks = len(traffic)
        is_last = np.zeros(len(nodes), dtype=np.bool_)
        is_last[starts[1:] - 1] = True
        # Every rank on a path but its last node begins a send, which ends at the next rank of the path.
        stops = np.flatnonzero(nodes < ranks)
        begins = ~is_last[stops]
        tails, heads = stops[begins], stops[np.flatnonzero(begins) + 1]
        paths = np.repeat(np.arange(len(weights)), np.diff(starts))[tails]
        lengths = heads - tails + 1
        leg_starts = np.concatenate([[0], np.cumsum(lengths)])
        leg_nodes = nodes[np.repeat(tails - leg_starts[:-1], lengths) + np.arange(leg_starts[-1])]
        # Chunks of each pair are counted from 0, path by path.
        pairs = nodes[starts[:-1]] * ranks + nodes[starts[1:] - 1]
        order = np.argsort(pairs, kind="stable")
        before = np.cumsum(weights[order]) - weights[order]
        lower = np.empty_like(weights)
        lower[order] = before - before[np.searchsorted(pairs[order], pairs[order])]
        return cls(
            ranks,
            traffic.reshape(-1),
            np.repeat(np.arange(ranks), ranks),
            np.tile(np.arange(ranks), ranks),
            hop_steps[tails - paths],  # The first hop of path p is p less than its first node.
            pairs[paths],
            lower[paths],
            (lower + weights)[paths],
            np.arange(len(tails)),
            leg_starts,
            leg_nodes,
        )

    @property
    def ends(self) -> tuple[IntArray, IntArray]:
        """First and last rank of the path of each send, int64 (sends,) each."""
        starts, nodes = self.path_starts, self.path_nodes
        return nodes[starts[:-1]][self.routes], nodes[starts[1:] - 1][self.routes]

    def item_name(self, item: int) -> str:
        """Name an item in messages."""
        owner, target = int(self.owners[item]), int(self.targets[item])
        if EVERYONE not in (owner, target):
            return f"the data of rank {owner} for rank {target}"
        return "the vector" if owner == target else f"the shard of rank {max(owner, target)}"

    def add_loads(self, loads: IntArray, numbers: IntArray, links: IntArray) -> None:
        """Add the loads of these sends, (steps, links), in chunks; `links` are those of all hops, path by path."""
        routes = self.routes[numbers]
        counts = self.path_starts[routes + 1] - self.path_starts[routes] - 1
        # A path has one hop less than nodes, so the first of path p is p less than its first node.
        before = self.path_starts[routes] - routes - np.cumsum(counts) + counts
        passed = links[np.repeat(before, counts) + np.arange(counts.sum())]
        places = np.repeat(self.steps[numbers], counts) * loads.shape[1] + passed
        amounts = self.upper[numbers] - self.lower[numbers]
        np.add.at(loads.reshape(-1), places, np.repeat(amounts, counts))

    def step_loads(self, topology: Topology) -> IntArray:
        """Chunks that cross each link in each step, int64 (steps, links).

        Raises `CertificateError` for a link that the topology does not have, and `UnsupportedError` if the steps are
        numbered so high that there is no room for a row each.
        """
        steps = int(self.steps.max(initial=-1)) + 1
        links = path_links(self.path_starts, self.path_nodes, topology, self.direction)
        if steps > MAX_STEPS or steps * topology.num_links > MAX_LOADS:
            raise UnsupportedError(
                f"the schedule has {steps} steps, too many for a row of loads on {topology.num_links} links each; "
                f"expected at most {MAX_STEPS} steps, numbered from 0 without gaps"
            )
        loads = np.zeros((steps, topology.num_links), dtype=np.int64)
        self.add_loads(loads, np.arange(len(self.steps)), links)
        return loads

    @property
    def waits(self) -> IntArray:
        """Pairs of sends, the second of which waits for the first, shape (2, waits)."""
        used, step = np.unique(self.steps, return_inverse=True)
        # Chunks lie in buckets as wide as the widest send, so that each send is in one or two of them.
        size, num_keys = int(self.sizes.max(initial=1)), len(self.sizes) * self.num_ranks * len(used)
        width = max(int((self.upper - self.lower).max(initial=1)), -(-size * num_keys // MAX_CHUNKS))
        first, last = self.lower // width, (self.upper - 1) // width
        crossing = np.flatnonzero(last > first)
        numbers = np.concatenate([np.arange(len(step)), crossing])
        buckets, step = np.concatenate([first, last[crossing]]), step[numbers]
        departures, arrivals = (
            (((self.items * self.num_ranks + ends)[numbers] * (size // width + 1)) + buckets) * len(used)
            for ends in self.ends
        )
        # All arrivals in one bucket of an item at a rank in steps before a departure from it.
        order = np.argsort(arrivals + step, kind="stable")
        begin, end = (np.searchsorted((arrivals + step)[order], keys) for keys in (departures, departures + step))
        counts = end - begin
        if counts.sum() > MAX_WAITS:
            raise UnsupportedError(
                f"the sends of the schedule wait for up to {counts.sum()} others in all; expected at most {MAX_WAITS}"
            )
        earlier = order[np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())]
        bucket, earlier, later = np.repeat(buckets, counts), numbers[earlier], np.repeat(numbers, counts)
        meet = (self.lower[earlier] < self.upper[later]) & (self.lower[later] < self.upper[earlier])
        meet &= bucket == np.maximum(first[earlier], first[later])  # only in the first of two that both are in
        pairs = np.stack([earlier[meet], later[meet]])
        return pairs[::-1] if self.direction == "reduce" else pairs

    def part(self, topology: Topology, item_starts: IntArray, scale: int = 1, done: int = 0) -> Part:
        """Sends as transfers, after `done` steps of others, in units of which a chunk has `scale`."""
        is_reduce = self.direction == "reduce"
        tails, heads = self.ends[::-1] if is_reduce else self.ends
        starts = self.path_starts - np.arange(len(self.path_starts))
        links = path_links(self.path_starts, self.path_nodes, topology, self.direction)
        return Part(
            tails,
            heads,
            item_starts[self.items] + self.lower * scale,
            (self.upper - self.lower) * scale,
            done + (int(self.steps.max()) - self.steps if is_reduce else self.steps),
            is_reduce,
            self.routes,
            in_direction(links, starts, is_reduce),
        )

    def transfers(self, topology: Topology, item_starts: IntArray, unit: Fraction) -> Transfers:
        """List all sends as transfers; `unit`: one chunk as a share of all the data."""
        transfers = concatenate([self.part(topology, item_starts)], unit, [self.waits])
        return transfers if self.adds is None else replace(transfers, adds=self.adds)


def as_columns(sends: Iterable[tuple[Any, ...]], second: str = "source") -> tuple[IntArray, ...]:
    """Read sends ``(step, second, lower, upper, path)``: these columns, routes, and the arrays of the paths."""
    numbers: dict[tuple[int, ...], int] = {}
    rows = as_rows(sends, numbers, second)
    try:
        columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
        paths = joined_rows(numbers)
    except OverflowError:
        raise UnsupportedError(f"the sends {shown(rows)} hold a number beyond 64 bits; expected none") from None
    return *columns, *paths


def shard_transfers(parts: Sequence[Sends], topology: Topology) -> Transfers:
    """List the transfers of an allgather or a reduce-scatter, or of an allreduce that consists of both."""
    ranks, chunks = parts[0].num_ranks, [int(part.sizes[0]) for part in parts]
    shard = lcm(*chunks)
    if shard * ranks >= MAX_CHUNKS:
        raise CapacityOverflowError(f"the schedule cuts the data into {shard * ranks} chunks; expected fewer than 2^62")
    unit, shards = Fraction(1, shard * ranks), np.arange(ranks) * shard
    if len(parts) == 1:
        return parts[0].transfers(topology, shards, unit)
    reduce, broadcast = parts
    num_reducing = int(reduce.steps.max(initial=-1)) + 1
    inwards = reduce.part(topology, shards, shard // chunks[0])
    outwards = broadcast.part(topology, shards, shard // chunks[1], num_reducing)
    ends = np.flatnonzero(inwards.receivers == reduce.items)
    begins = np.flatnonzero(outwards.senders == broadcast.items)
    # Where a shard, or a range that arrives at its owner or leaves it, begins or ends.
    places = np.unique(
        np.concatenate([np.append(shards, ranks * shard), *_bounds(inwards, ends), *_bounds(outwards, begins)])
    )
    own = places[:-1] // shard
    turns = root_transfers(own, places[:-1], np.diff(places), np.full_like(own, num_reducing))
    first_turn = len(reduce.steps)
    first_out = first_turn + len(places) - 1
    before, turn = _intervals(places, inwards, ends)
    after, turn_after = _intervals(places, outwards, begins)
    waits = [
        reduce.waits,
        np.stack([before, turn + first_turn]),
        np.stack([turn_after + first_turn, after + first_out]),
        broadcast.waits + first_out,
    ]
    return concatenate([inwards, turns, outwards], unit, waits)


def _bounds(part: Part, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """First unit of these transfers, and the one after their last."""
    return part.firsts[numbers], part.firsts[numbers] + part.amounts[numbers]


def _intervals(places: IntArray, part: Part, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs of a transfer and an interval between two places that it carries."""
    first, last = (np.searchsorted(places, bounds) for bounds in _bounds(part, numbers))
    counts = last - first
    intervals = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.repeat(numbers, counts), intervals
