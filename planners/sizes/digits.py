"""Allgathers along the digits of ranks: which rank passes each shard to each rank, and in which step.

The *offset* of two ranks has one digit per level, the difference of their digits.  A shard reaches a rank by one hop
for each nonzero digit of the offset from its source, in a fixed order of the digits, the farthest level first.  A level
of many ranks can be divided further: digits of its offset in some radix, the lowest first, are the steps of Bruck's
algorithm (Bruck et al., IEEE TPDS 8(11), 1997).  So every pair of ranks has its *last hop*, and these form one tree for
each source.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations, pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from ...support.arrays import BoolArray, IntArray
from ...topologies.graphs.rank_groups import RankGroups


class Level(NamedTuple):
    """A digit of ranks: its value for each rank, how many there are, and the radix of its steps."""

    digits: IntArray  # int64 (ranks,)
    size: int
    radix: int

    @property
    def strides(self) -> tuple[int, ...]:
        """Weights of the digits of its offsets, one for each step."""
        found = [1]
        while found[-1] * self.radix < self.size:
            found.append(found[-1] * self.radix)
        return tuple(found)

    @property
    def most_hops(self) -> int:
        """How many digits of an offset can be nonzero at once: all, unless 1, 1, ... is too large an offset."""
        return len(self.strides) - (sum(self.strides) >= self.size)


class LastHops(NamedTuple):
    """The last hop of each shard to each rank that does not have it, source by source.

    `sources`, `receivers`, `senders`: int64 (pairs,); ranks.
    `places`: int64 (pairs,); the step of the last nonzero digit, if all digits have a step.
    `counts`: int64 (pairs,); hops from the source to the receiver.
    """

    sources: IntArray
    receivers: IntArray
    senders: IntArray
    places: IntArray
    counts: IntArray

    def chosen(self, mask: BoolArray) -> LastHops:
        """Return some of them."""
        return LastHops(*(column[mask] for column in self))


class Digits:
    """Digits of ranks in the order of the hops, whose combinations are all different.

    Parameters
    ----------
    levels : sequence of Level
        From the first hop to the last.
    """

    def __init__(self, levels: Sequence[Level]) -> None:
        self.levels = tuple(levels)

    @property
    def num_ranks(self) -> int:
        """How many ranks there are."""
        return prod(level.size for level in self.levels)

    @property
    def num_steps(self) -> int:
        """How many digits offsets have."""
        return sum(len(level.strides) for level in self.levels)

    @property
    def most_hops(self) -> int:
        """Hops to the farthest ranks."""
        return sum(level.most_hops for level in self.levels)

    @property
    def radices(self) -> tuple[int, ...]:
        """Those of the levels."""
        return tuple(level.radix for level in self.levels)

    @property
    def text(self) -> str:
        """Such as ``"4x8"``."""
        return "x".join(str(level.size) for level in self.levels)

    @cached_property
    def last_hops(self) -> LastHops:
        """Work out the last hop of each pair of ranks."""
        ranks = self.num_ranks
        sources, receivers = np.divmod(np.arange(ranks * ranks), ranks)
        apart = sources != receivers
        sources, receivers = sources[apart], receivers[apart]
        place, level_of, moved, counts = (np.zeros(len(sources), dtype=np.int64) for _ in range(4))
        step = 0
        for number, level in enumerate(self.levels):
            offsets = (level.digits[receivers] - level.digits[sources]) % level.size
            for stride in level.strides:
                digit = offsets // stride % level.radix
                moves = digit > 0
                place[moves], level_of[moves], moved[moves] = step, number, (digit * stride)[moves]
                counts += moves
                step += 1
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

    def neighbors(self) -> LastHops:
        """Return those of the last hops that are the first as well: who sends to whom."""
        return self.last_hops.chosen(self.last_hops.counts == 1)


def compositions(groups: RankGroups, most: int) -> list[Digits]:
    """All ways to join adjacent levels of groups to fewer digits, fewest digits first; few of them beyond `most`."""
    levels = len(groups.sizes)
    inner = range(1, levels)
    if 1 << (levels - 1) > most:
        cuts = {(), *((place,) for place in inner), tuple(inner)}
    else:
        cuts = {cut for count in range(levels) for cut in combinations(inner, count)}
    return [joined(groups, cut) for cut in sorted(cuts, key=lambda cut: (len(cut), cut))]


def joined(groups: RankGroups, cuts: Sequence[int]) -> Digits:
    """Join the levels of groups between cuts to one digit each."""
    ends = (0, *cuts, len(groups.sizes))
    found = []
    for start, stop in pairwise(ends):
        sizes = groups.sizes[start:stop]
        values = np.ravel_multi_index(tuple(groups.digits[:, start:stop].T), sizes)
        found.append(Level(np.asarray(values, dtype=np.int64), prod(sizes), prod(sizes)))
    return Digits(found)


def with_radix(digits: Digits, radix: int) -> Digits:
    """Divide levels of more ranks than a radix into as few steps as it allows, with the least radix for these."""
    found = []
    for level in digits.levels:
        steps = 1
        while radix**steps < level.size:
            steps += 1
        least = 2
        while least**steps < level.size:
            least += 1
        found.append(level._replace(radix=least if steps > 1 else level.size))
    return Digits(found)
