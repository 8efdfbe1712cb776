"""Ranges of chunks that the trees of a schedule carry."""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from ...support.arrays import IntArray
from ..traffic.collective import Direction
from .allreduce import TreeSchedule
from .forest import Forest


class TreeChunks(NamedTuple):
    """Chunks ``first .. first + chunks - 1`` of all, of the shard of `root`, on one or two trees (-1: none)."""

    root: int
    first: int
    chunks: int
    reduce_tree: int
    broadcast_tree: int


class Share(NamedTuple):
    """Chunks ``begin .. end - 1`` of the shard of `root`, counted inside the shard, follow `tree`."""

    root: int
    begin: int
    end: int
    tree: int


def shard_chunks(schedule: TreeSchedule) -> tuple[int, ...]:
    """Chunks of every rank's shard."""
    chunk = _chunk_size(schedule)
    return tuple(int(weight / chunk) for weight in schedule.root_weights.tolist())


def _chunk_size(schedule: TreeSchedule) -> Fraction:
    """Largest amount of data, in units of shard weight, of which every tree carries a multiple."""
    common = lcm(*(forest.trees_per_root for forest in schedule.forests))
    return Fraction(
        gcd(*(common // forest.trees_per_root * gcd(*forest.weights.tolist()) for forest in schedule.forests)), common
    )


def tree_chunks(schedule: TreeSchedule, shards: Sequence[int], max_count: int) -> list[TreeChunks]:
    """Assign every tree its chunks, in nearly equal ranges of at most `max_count`."""
    chunk = _chunk_size(schedule)
    return cut_shares({forest.direction: _shares(forest, chunk) for forest in schedule.forests}, shards, max_count)


def cut_shares(shares: Mapping[Direction, Iterable[Share]], shards: Sequence[int], max_count: int) -> list[TreeChunks]:
    """Cut the shares of the trees of one direction, or of both, into ranges of at most `max_count` chunks."""
    offsets = list(accumulate(shards, initial=0))
    if len(shares) == 1:
        ((direction, only),) = shares.items()
        return [
            TreeChunks(root, offsets[root] + first, chunks, *((tree, -1) if direction == "reduce" else (-1, tree)))
            for root, begin, end, tree in only
            for first, chunks in split_range(begin, end, max_count)
        ]
    reduce_trees: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for root, begin, _, tree in shares["reduce"]:
        reduce_trees[root].append((begin, tree))
    return [
        TreeChunks(root, offsets[root] + first, chunks, tree, broadcast_tree)
        for root, begin, end, broadcast_tree in shares["broadcast"]
        for left, right, tree in _overlaps(reduce_trees[root], begin, end)
        for first, chunks in split_range(left, right, max_count)
    ]


def _shares(forest: Forest, chunk: Fraction) -> Iterator[Share]:
    """Yield the share of each tree."""
    share = chunk * forest.trees_per_root
    used: Counter[int] = Counter()
    for tree, (root, weight) in enumerate(zip(forest.roots.tolist(), forest.weights.tolist(), strict=True)):
        begin = used[root]
        used[root] += int(weight / share)
        yield Share(root, begin, used[root], tree)


def _overlaps(shares: Sequence[tuple[int, int]], begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Cut ``begin .. end - 1`` at the begins of `shares`, (first chunk, tree)."""
    number = bisect_right(shares, begin, key=lambda share: share[0]) - 1
    while begin < end:
        until = min(end, shares[number + 1][0]) if number + 1 < len(shares) else end
        yield begin, until, shares[number][1]
        begin, number = until, number + 1


def split_range(begin: int, end: int, most: int) -> list[tuple[int, int]]:
    """Cut a range into the fewest parts (first, count) of at most `most`, sizes differing by at most one."""
    if begin == end:
        return []
    number = -(-(end - begin) // most)
    small, larger = divmod(end - begin, number)
    counts = [small + 1] * larger + [small] * (number - larger)
    return list(zip(accumulate(counts[:-1], initial=begin), counts, strict=True))


def heights_below(forest: Forest) -> IntArray:
    """Shape (trees, ranks): hops from each rank down to the farthest leaf below it."""
    heights = np.zeros(forest.routes.shape, dtype=np.int64)
    for depth in range(int(forest.depths.max()), 0, -1):
        trees, heads = np.nonzero(forest.depths == depth)
        np.maximum.at(heights, (trees, forest.parents[trees, heads]), heights[trees, heads] + 1)
    return heights
