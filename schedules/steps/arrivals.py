"""Arrival order of chunks: the part of the check of schedules in steps that looks at their order.

It reads the arrays of a schedule whose entries, each for itself, were checked, and trusts nothing else.  Copies of
different shards never meet, so sends are looked at source by source, many at once by sorting, in blocks of bounded
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...support.arrays import IntArray, distinct
from .schedule import StepSchedule

NEVER = 2**62  # the step in which a rank gets what it never gets
FROM_THE_START = -1
BLOCK = 2**16
"""Sends and holdings that are looked at together, if that is not less than one source's: few enough for caches."""


@dataclass(frozen=True)
class Sends:
    """All sends of the shards of consecutive ranks; different shards are independent."""

    first: int
    count: int  # the shards are those of ranks ``first``, ..., ``first + count - 1``
    num_ranks: int
    chunks: int  # of one shard
    numbers: IntArray  # int64 (sends,); where the sends are in the schedule's arrays
    steps: IntArray  # int64 (sends,)
    sources: IntArray  # int64 (sends,)
    lower: IntArray  # int64 (sends,)
    upper: IntArray  # int64 (sends,)
    senders: IntArray  # int64 (sends,)
    receivers: IntArray  # int64 (sends,)


def blocks_of(schedule: StepSchedule) -> Iterator[Sends]:
    """Yield all sends, source by source, in blocks of limited memory."""
    ranks, starts = schedule.num_ranks, schedule.path_starts
    small = schedule.sources.astype(np.min_scalar_type(ranks))  # short integers are sorted fast
    order = np.argsort(small, kind="stable")
    until = np.cumsum(np.bincount(schedule.sources, minlength=ranks))
    senders, receivers = schedule.path_nodes[starts[:-1]], schedule.path_nodes[starts[1:] - 1]
    first = 0
    while first < ranks:
        begin = int(until[first - 1]) if first else 0
        weights = until[first:] - begin + ranks * np.arange(1, ranks - first + 1)
        count = max(1, int(np.searchsorted(weights, BLOCK, side="right")))
        numbers = order[begin : until[first + count - 1]]
        routes = schedule.routes[numbers]
        columns = (schedule.steps, schedule.sources, schedule.lower, schedule.upper)
        values = (*(column[numbers] for column in columns), senders[routes], receivers[routes])
        yield Sends(first, count, ranks, schedule.chunks_per_shard, numbers, *values)
        first += count


@dataclass(frozen=True)
class Arrivals:
    """Arrival times of each part of each shard at each rank.

    A *holding* is one rank's copy of one shard, number ``source * num_ranks + rank``, sources counted from the first of
    the block.  It falls into pieces between the points where intervals that this rank sends or is sent begin or end.  A
    point is the number of its holding times `span` plus its chunk, so that one sorted array holds all of them.

    `points` (int64 (pieces,)): Where each piece begins; the next one is where it ends.  The last piece of a holding is
        empty.
    `first` (int64 (pieces,)): The step that brings each piece first; -1 if it is there from the start, `NEVER` if no
        step does.
    """

    points: IntArray
    first: IntArray
    times: IntArray  # int64 (pieces,); how often a piece is brought, or there from the start
    held: IntArray  # int64 (sends,); the step after which the sender has all of what it sends

    @classmethod
    def of(cls, sends: Sends) -> Arrivals:
        """Compute the arrival times.

        Points are less than ``num_ranks**2 * (chunks + 1)``, and so fit 64 bits: a schedule that is worth a look has
        ``num_ranks * (num_ranks - 1)`` sends at least, and its sends times chunks are less than 2**62.
        """
        span = sends.chunks + 1
        bases = np.arange(sends.count * sends.num_ranks) * span
        own = bases[np.arange(sends.count) * (sends.num_ranks + 1) + sends.first]
        rows = (sends.sources - sends.first) * sends.num_ranks
        given, taken = (rows + sends.senders) * span, (rows + sends.receivers) * span
        wanted = (own, taken + sends.lower, own + sends.chunks, taken + sends.upper, given + sends.lower)
        keys = np.concatenate([*wanted, given + sends.upper, bases, bases + sends.chunks])
        points, places = distinct(keys)
        brought = len(own) + len(taken)
        starts, stops = places[:brought], places[brought : 2 * brought]
        steps = np.concatenate([np.full(len(own), FROM_THE_START), sends.steps])
        first = _least_over(len(points), starts, stops, steps)
        changes = np.bincount(starts, minlength=len(points)) - np.bincount(stops, minlength=len(points))
        asked = places[2 * brought :]
        held = _greatest_in(first, asked[: len(taken)], asked[len(taken) : 2 * len(taken)])
        return cls(points, first, np.cumsum(changes), held)


def _least_over(size: int, starts: IntArray, stops: IntArray, values: IntArray) -> IntArray:
    """At each position the least value of the intervals that cover it, `NEVER` if none does.

    An interval is covered by two blocks whose length is a power of two; blocks are halved, the longest first.
    """
    powers = np.frexp(stops - starts)[1] - 1
    least = np.full(size, NEVER)
    for power in range(int(powers.max()), -1, -1):
        block = 1 << power
        wider, least = least, least.copy()
        np.minimum(least[block:], wider[:-block], out=least[block:])
        chosen = powers == power
        np.minimum.at(least, starts[chosen], values[chosen])
        np.minimum.at(least, stops[chosen] - block, values[chosen])
    return least


def _greatest_in(values: IntArray, starts: IntArray, stops: IntArray) -> IntArray:
    """Greatest value in each interval, by blocks as in `_least_over`, the shortest first."""
    powers = np.frexp(stops - starts)[1] - 1
    greatest = np.empty(len(starts), dtype=np.int64)
    values = values.copy()
    for power in range(int(powers.max(initial=-1)) + 1):
        block = 1 << power
        chosen = powers == power
        greatest[chosen] = np.maximum(values[starts[chosen]], values[stops[chosen] - block])
        values[:-block] = np.maximum(values[:-block], values[block:])
    return greatest
