"""Chunk ranges of the trees of a schedule, and the global order of their hops; see docs/explanation/programs.md."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from math import gcd, lcm
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import ProgramError, UnsupportedError
from ...schedules import Allreduce, Forest, TreeSchedule
from ...schedules.traffic.collective import Direction
from ...support.arrays import IntArray

MAX_TRANSFERS = 2**26
"""Some tens of GB as steps."""


class Strand(NamedTuple):
    """Chunks ``first .. first + chunks - 1`` of the collective, of the shard of `root`.

    `adding` is the tree that adds them up and `spreading` the one that spreads them; -1 where there is none.
    """

    root: int
    first: int
    chunks: int
    adding: int
    spreading: int


class Share(NamedTuple):
    """Chunks ``begin .. end - 1`` of the shard of `root`, counted inside the shard, follow `tree`."""

    root: int
    begin: int
    end: int
    tree: int


class Hop(NamedTuple):
    """One strand on its way from one rank to another; `adds` says that the receiver adds its own.

    With `strands` above 1 it is that many, from number `strand` on, as one piece of memory at either end.
    """

    strand: int
    sender: int
    receiver: int
    adds: bool
    strands: int = 1


def shard_chunks(schedule: TreeSchedule) -> tuple[int, ...]:
    """Chunks of every rank's shard."""
    chunk = _chunk_size(schedule)
    return tuple(int(weight / chunk) for weight in schedule.root_weights.tolist())


def _chunk_size(schedule: TreeSchedule) -> Fraction:
    """The largest amount of data, in units of shard weight, that every tree carries a whole multiple of."""
    common = lcm(*(forest.trees_per_root for forest in schedule.forests))
    return Fraction(
        gcd(*(common // forest.trees_per_root * gcd(*forest.weights.tolist()) for forest in schedule.forests)), common
    )


def strands_of(schedule: TreeSchedule, shards: Sequence[int], max_count: int) -> list[Strand]:
    """Give every tree its chunks, in strands of at most `max_count`, as equal as can be."""
    chunk = _chunk_size(schedule)
    return cut_strands({forest.direction: _shares(forest, chunk) for forest in schedule.forests}, shards, max_count)


def cut_strands(shares: Mapping[Direction, Iterable[Share]], shards: Sequence[int], max_count: int) -> list[Strand]:
    """Cut the shares of the trees of one direction, or of both, into strands of at most `max_count` chunks."""
    offsets = list(accumulate(shards, initial=0))
    if len(shares) == 1:
        ((direction, only),) = shares.items()
        return [
            Strand(root, offsets[root] + first, chunks, *((tree, -1) if direction == "reduce" else (-1, tree)))
            for root, begin, end, tree in only
            for first, chunks in pieces(begin, end, max_count)
        ]
    adding: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for root, begin, _, tree in shares["reduce"]:
        adding[root].append((begin, tree))
    return [
        Strand(root, offsets[root] + first, chunks, tree, spreading)
        for root, begin, end, spreading in shares["broadcast"]
        for left, right, tree in _overlaps(adding[root], begin, end)
        for first, chunks in pieces(left, right, max_count)
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
    """Cut ``begin .. end - 1`` where the trees in `shares`, (first chunk, tree), change."""
    number = bisect_right(shares, begin, key=lambda share: share[0]) - 1
    while begin < end:
        until = min(end, shares[number + 1][0]) if number + 1 < len(shares) else end
        yield begin, until, shares[number][1]
        begin, number = until, number + 1


def pieces(begin: int, end: int, most: int) -> list[tuple[int, int]]:
    """Cut a range into as few pieces (first, count) of at most `most` as possible, sizes differing by at most one."""
    if begin == end:
        return []
    number = -(-(end - begin) // most)
    small, larger = divmod(end - begin, number)
    counts = [small + 1] * larger + [small] * (number - larger)
    return list(zip(accumulate(counts[:-1], initial=begin), counts, strict=True))


def ordered_hops(schedule: TreeSchedule, strands: Sequence[Strand]) -> list[Hop]:
    """All hops in the global order."""
    adding = np.array([strand.adding for strand in strands])
    spreading = np.array([strand.spreading for strand in strands])
    # Height of each strand's adding tree, and of its spreading one.
    before, after = np.zeros((2, len(strands)), dtype=np.int64)
    for forest in schedule.forests:
        if forest.direction == "reduce":
            before = forest.heights[adding]
        else:
            after = forest.heights[spreading]
    parts = [
        _hops_in(forest, adding, after) if forest.direction == "reduce" else _hops_out(forest, spreading, before)
        for forest in schedule.forests
    ]
    numbers, senders, receivers, adds, levels, left, ranks = (
        np.concatenate(columns) for columns in zip(*parts, strict=True)
    )
    order = np.lexsort((ranks, numbers, -left, levels))
    columns = (column[order].tolist() for column in (numbers, senders, receivers, adds))
    return [Hop(*row) for row in zip(*columns, strict=True)]


def _hops_out(forest: Forest, trees: IntArray, before: IntArray) -> tuple[npt.NDArray[np.generic], ...]:
    """Columns strand, sender, receiver, adds, level, hops still to go, and the rank that names the hop in its tree."""
    numbers, heads = np.nonzero(forest.routes[trees] >= 0)
    levels = before[numbers] + forest.depths[trees[numbers], heads] - 1
    left = _heights(forest)[trees[numbers], heads]
    senders = forest.parents[trees[numbers], heads]
    return numbers, senders, heads, np.zeros(len(heads), dtype=np.bool_), levels, left, heads


def _hops_in(forest: Forest, trees: IntArray, after: IntArray) -> tuple[npt.NDArray[np.generic], ...]:
    """Return the same columns for hops towards the root."""
    numbers, tails = np.nonzero(forest.routes[trees] >= 0)
    levels = _heights(forest)[trees[numbers], tails]
    left = forest.depths[trees[numbers], tails] - 1 + after[numbers]
    receivers = forest.parents[trees[numbers], tails]
    return numbers, tails, receivers, np.ones(len(tails), dtype=np.bool_), levels, left, tails


def _heights(forest: Forest) -> IntArray:
    """Shape (trees, ranks): hops from each rank down to the farthest leaf below it."""
    heights = np.zeros(forest.routes.shape, dtype=np.int64)
    for depth in range(int(forest.depths.max()), 0, -1):
        trees, heads = np.nonzero(forest.depths == depth)
        np.maximum.at(heights, (trees, forest.parents[trees, heads]), heights[trees, heads] + 1)
    return heights


def check_forest(forest: Forest) -> None:
    """Refuse weights that do not add up, and trees that do not reach every rank exactly once."""
    ranks = forest.num_ranks
    if forest.num_trees == 0 or forest.trees_per_root < 1 or forest.weights.min() < 1:
        raise ProgramError(
            f"the forest has {forest.num_trees} trees and {forest.trees_per_root} trees per root; "
            "expected at least one tree per rank with data, each of weight 1 or more"
        )
    if forest.roots.min() < 0 or forest.roots.max() >= ranks:
        raise ProgramError(f"the forest has a tree with root {forest.roots.max()}; expected ranks 0 to {ranks - 1}")
    totals = np.zeros(ranks, dtype=np.int64)
    np.add.at(totals, forest.roots, forest.weights)
    expected = forest.trees_per_root * forest.root_weights
    for rank in np.flatnonzero(totals != expected):
        raise UnsupportedError(
            f"the trees of rank {rank} weigh {totals[rank]}, expected {expected[rank]}: trees_per_root = "
            f"{forest.trees_per_root} times the weight of its shard"
        )
    _check_spanning(forest)


def _check_spanning(forest: Forest) -> None:
    ranks = np.arange(forest.num_ranks)
    ends = np.append(forest.path_nodes[forest.path_starts[1:] - 1], -1)
    expected = np.where(ranks == forest.roots[:, None], -1, ranks)
    wrong = (ends[np.maximum(forest.routes, -1)] != expected).any(axis=1)
    wrong |= forest.parents.max(axis=1, initial=-1) >= forest.num_ranks
    for tree in np.flatnonzero(wrong).tolist():
        raise ProgramError(
            f"tree {tree} of the forest (root {forest.roots[tree]}) does not reach every other rank exactly once"
        )
    if forest.depths.max() >= forest.num_ranks:
        tree = int(np.argmax(forest.heights))
        raise ProgramError(f"tree {tree} of the forest (root {forest.roots[tree]}) has ranks cut off from its root")


def check_halves(schedule: Allreduce) -> None:
    """Refuse an allreduce whose two forests do not belong together."""
    adding, spreading = schedule.reduce, schedule.broadcast
    if (adding.direction, spreading.direction) != ("reduce", "broadcast"):
        raise ProgramError(
            f"the allreduce's forests have directions {adding.direction!r} and {spreading.direction!r}; expected "
            "'reduce' and 'broadcast'"
        )
    if adding.num_ranks != spreading.num_ranks or not np.array_equal(adding.root_weights, spreading.root_weights):
        raise ProgramError("the allreduce's forests are for different ranks or shards; expected the same in both")
