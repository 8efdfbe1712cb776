"""Allgathers along the digits of ranks: which rank passes each shard to each rank, and in which step.

A shard makes one hop for each nonzero digit of the offset from its source, the farthest level first; a level can be
divided in some radix, the lowest digit first (Bruck).  The *last hops* of all pairs form one tree for each source.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations, count, pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from ...support.arrays import IntArray
from ...topologies.symmetry.rank_groups import RankGroups


class Level(NamedTuple):
    """A digit of ranks: its value for each rank, how many there are, and the radix of its steps."""

    digits: IntArray  # int64 (ranks,)
    size: int
    radix: int

    @property
    def strides(self) -> tuple[int, ...]:
        """Weights of the digits of its offsets, one for each step."""
        weights = [1]
        while weights[-1] * self.radix < self.size:
            weights.append(weights[-1] * self.radix)
        return tuple(weights)

    @property
    def most_hops(self) -> int:
        """How many digits of an offset can be nonzero at once: all, unless 1, 1, ... is too large an offset."""
        return len(self.strides) - (sum(self.strides) >= self.size)


class LastHops(NamedTuple):
    """The last hop of each shard to each rank that does not have it, source by source; int64 (pairs,)."""

    sources: IntArray
    receivers: IntArray
    senders: IntArray
    places: IntArray  # the step of the last nonzero digit, if all digits have a step
    counts: IntArray  # hops from the source to the receiver


class Move(NamedTuple):
    """A hop of all ranks at once: as many places along a level."""

    step: int  # that of its digit
    level: int
    amount: int
    lower: int  # how many offsets on the level have it for their last move


def _by_hops(size: int, radix: int) -> IntArray:
    """How many offsets below a size have 0, 1, 2, ... nonzero digits."""
    offsets = np.arange(size)
    nonzero = np.zeros(size, dtype=np.int64)
    while offsets.any():
        nonzero += offsets % radix > 0
        offsets //= radix
    return np.bincount(nonzero)


class Digits:
    """Digits of ranks in the order of the hops, whose combinations are all different; levels from first to last hop."""

    def __init__(self, levels: Sequence[Level]) -> None:
        self.levels = tuple(levels)
        self.num_ranks = prod(level.size for level in self.levels)
        self.num_steps = sum(len(level.strides) for level in self.levels)  # how many digits offsets have
        self.most_hops = sum(level.most_hops for level in self.levels)  # to the farthest ranks

    @cached_property
    def last_hops(self) -> LastHops:
        """Work out the last hop of each pair of ranks."""
        ranks = self.num_ranks
        sources, receivers = np.divmod(np.arange(ranks * ranks), ranks)
        distinct = sources != receivers
        sources, receivers = sources[distinct], receivers[distinct]
        # Each nonzero digit of an offset is a hop; the last one overwrites those before.
        place, level_of, moved, counts = (np.zeros(len(sources), dtype=np.int64) for _ in range(4))
        strides = [(number, level, stride) for number, level in enumerate(self.levels) for stride in level.strides]
        for step, (number, level, stride) in enumerate(strides):
            offsets = (level.digits[receivers] - level.digits[sources]) % level.size
            digit = offsets // stride % level.radix
            moves = digit > 0
            place[moves], level_of[moves], moved[moves] = step, number, (digit * stride)[moves]
            counts += moves
        return LastHops(sources, receivers, self._back(receivers, level_of, moved), place, counts)

    def _back(self, receivers: IntArray, level_of: IntArray, moved: IntArray) -> IntArray:
        """Ranks that are `moved` places before the receivers on a level; all int64 (pairs,)."""
        sizes = tuple(level.size for level in self.levels)
        digits = np.stack([level.digits for level in self.levels])
        rank_at = np.empty(self.num_ranks, dtype=np.int64)
        values = np.ravel_multi_index(tuple(digits), sizes)
        rank_at[values] = np.arange(self.num_ranks)
        strides = np.array([prod(sizes[number + 1 :]) for number in range(len(sizes))])[level_of]
        old = digits[level_of, receivers]
        new = (old - moved) % np.array(sizes)[level_of]
        senders: IntArray = rank_at[values[receivers] + (new - old) * strides]
        return senders

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """All single hops, by the step of their digit."""
        hops: list[Move] = []
        for number, level in enumerate(self.levels):
            for stride in level.strides:
                step = hops[-1].step + 1 if hops else 0
                amounts = range(stride, min(level.size, stride * level.radix), stride)
                hops += [Move(step, number, amount, min(stride, level.size - amount)) for amount in amounts]
        return tuple(hops)

    @cached_property
    def partners(self) -> tuple[IntArray, IntArray]:
        """Senders and receivers of all moves, int64 (moves, ranks)."""
        level_of, amounts = (np.array([getattr(move, name) for move in self.moves]) for name in ("level", "amount"))
        senders = np.tile(np.arange(self.num_ranks), (len(self.moves), 1))
        shape = senders.shape
        columns = (np.broadcast_to(column[:, None], shape).ravel() for column in (level_of, -amounts))
        return senders, self._back(senders.ravel(), *columns).reshape(shape)

    def shards_in_turn(self) -> IntArray:
        """Shards that each move carries in each step if steps take one digit each, int64 (steps, moves)."""
        shards = np.zeros((self.num_steps, len(self.moves)), dtype=np.int64)
        for number, move in enumerate(self.moves):
            shards[move.step, number] = move.lower * prod(level.size for level in self.levels[: move.level])
        return shards

    def shards_overlapping(self) -> IntArray:
        """Shards that each move carries in each step if all are passed on at once, int64 (steps, moves)."""
        shards = np.zeros((self.most_hops, len(self.moves)), dtype=np.int64)
        before = [np.ones(1, dtype=np.int64)]  # offsets on the levels before each one, by their nonzero digits
        for level in self.levels:
            before.append(np.convolve(before[-1], _by_hops(level.size, level.radix)))
        for number, move in enumerate(self.moves):
            counts = np.convolve(before[move.level], _by_hops(move.lower, self.levels[move.level].radix))
            counts = np.trim_zeros(counts, "b")
            shards[: len(counts), number] = counts
        return shards


def compositions(groups: RankGroups, limit: int) -> list[Digits]:
    """All ways to join adjacent levels of groups to fewer digits, fewest digits first; few of them beyond `limit`."""
    levels = len(groups.sizes)
    inner = range(1, levels)
    if 1 << (levels - 1) > limit:
        cuts = {(), *((place,) for place in inner), tuple(inner)}
    else:
        cuts = {cut for count in range(levels) for cut in combinations(inner, count)}
    return [joined(groups, cut) for cut in sorted(cuts, key=lambda cut: (len(cut), cut))]


def joined(groups: RankGroups, cuts: Sequence[int]) -> Digits:
    """Join the levels of groups between cuts to one digit each."""
    digits = []
    for start, stop in pairwise((0, *cuts, len(groups.sizes))):
        sizes = groups.sizes[start:stop]
        values = np.ravel_multi_index(tuple(groups.digits[:, start:stop].T), sizes)
        digits.append(Level(np.asarray(values, dtype=np.int64), prod(sizes), prod(sizes)))
    return Digits(digits)


def with_radix(digits: Digits, radix: int) -> Digits:
    """Divide levels of more ranks than a radix into as few steps as it allows, with the least radix for these."""
    divided = []
    for level in digits.levels:
        steps = next(steps for steps in count(1) if radix**steps >= level.size)
        smallest = next(smaller for smaller in count(2) if smaller**steps >= level.size)
        divided.append(level._replace(radix=smallest if steps > 1 else level.size))
    return Digits(divided)
