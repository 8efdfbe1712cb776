"""The base of schedules of trees: their trees as items, the chunks that these carry, and figures."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from math import gcd, lcm
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast, overload

import numpy as np

from ...support.arrays import IntArray
from ...support.formatting import count_text, percentage_text, span_text
from ...topologies import Topology
from ..collective import Collective, Direction
from ..schedule import Schedule
from ..transfers import Transfers
from .tree_arrays import TreeArrays, TreeEdge


class Tree(NamedTuple):
    """One tree of a schedule.

    Attributes
    ----------
    root : int
        Rank number.
    share : Fraction
        Of all data, that the tree carries.
    direction : {"broadcast", "reduce"}
        Whether data runs away from the root or towards it.
    edges : tuple of TreeEdge
        Its hops, from the root outwards.
    """

    root: int
    share: Fraction
    direction: Direction
    edges: tuple[TreeEdge, ...]

    def __repr__(self) -> str:
        """One line in angle brackets."""
        return f"<Tree of rank {self.root}: {self.direction} of {self.share} of all data over {len(self.edges)} edges>"


class Heights(NamedTuple):
    """Heights of trees: lowest, mean over their data, and highest."""

    lowest: int
    mean: float
    highest: int

    @property
    def text(self) -> str:
        """Such as ``"height 2 to 3 hops, mean 2.5"``."""
        mean = "" if self.lowest == self.highest else f", mean {self.mean:.1f}"
        return f"height {span_text(self.lowest, self.highest, 'hop')}{mean}"


class Trees(Schedule):
    """All schedules that consist of trees, whether these are all written down or not."""

    parts: ClassVar[str] = "trees"
    subject: ClassVar[str] = "trees are"
    load_text: ClassVar[str] = "the trees put {load} copies"
    view = "trees"
    form: ClassVar[str] = "trees"

    if TYPE_CHECKING:

        @property
        def forests(self) -> tuple[TreeArrays, ...]:
            """Trees that are written down, those of each direction."""

        @property
        def trees_per_root(self) -> int:
            """Unit in which loads count; see `Forest`."""

        @property
        def root_weights(self) -> IntArray:
            """Relative sizes of the shards."""

    @property
    def heights(self) -> IntArray:
        """Heights of all trees, those of a reduction first."""
        return np.concatenate([forest.heights for forest in self.forests])

    @property
    def height_range(self) -> Heights:
        """Lowest, mean and highest height of the trees."""
        total = sum(int((forest.heights * forest.weights).sum()) for forest in self.forests)
        copies = sum(int(forest.weights.sum()) for forest in self.forests)
        return Heights(int(self.heights.min()), total / copies, int(self.heights.max()))

    @property
    def num_steps(self) -> int:
        """None: data flows."""
        return 0

    @property
    def sends_unevenly(self) -> bool:
        """Never: messages are those of all edges."""
        return False

    @property
    def load_units(self) -> tuple[int, ...]:
        """Copies of trees that carry a unit of data."""
        return (self.trees_per_root,)

    def problem(self, collective: Collective) -> dict[str, Any]:  # noqa: ARG002
        """Return nothing: shards are equal, or all ranks end with all data."""
        return {}

    @property
    def num_hops(self) -> int:
        """Links that all trees take."""
        hops = 0
        for forest in cast("Trees", self.expanded).forests:
            lengths = np.diff(forest.path_starts) - 1
            hops += int(lengths[forest.routes[forest.routes >= 0]].sum())
        return hops

    @property
    def branching_switches(self) -> frozenset[int]:
        """Numbers of the switches where trees branch."""
        return frozenset(node for forest in self.forests for node in forest.switches.tolist())

    @property
    def hops_before(self) -> tuple[IntArray, ...]:
        """Hops before the first one of each tree, int64 (trees,) for each forest."""
        return tuple(np.zeros(forest.num_trees, dtype=np.int64) for forest in self.forests)

    def part_numbers(self, transfers: Transfers) -> IntArray:
        """Number of the tree of each transfer, int64 (transfers,)."""
        schedule = cast("Trees", self.expanded)
        firsts, reduce_trees, broadcast_trees = chunk_columns(schedule)
        ranges = np.searchsorted(firsts, transfers.firsts)
        before = schedule.forests[0].num_trees if len(schedule.forests) > 1 else 0
        numbers: IntArray = np.where(transfers.adds, reduce_trees[ranges], broadcast_trees[ranges] + before)
        return numbers

    def figures(self, topology: Topology) -> dict[str, Any]:  # noqa: ARG002
        """Numbers of trees, of switches where they branch, and heights."""
        heights = self.height_range
        return {
            "trees_per_root": self.forests[-1].trees_per_root,
            "root_weights": self.root_weights.tolist(),
            "num_trees": self.num_trees,
            "branching_switches": len(self.branching_switches),
            "min_height": heights.lowest,
            "mean_height": heights.mean,
            "max_height": heights.highest,
        }

    def checks(self) -> dict[str, str]:
        """Describe the checks of routes and trees."""
        shard = "share of the data" if len(self.phases) > 1 else "shard"
        count = len(self.branching_switches)
        paths = sum(len(forest.path_starts) - 1 for forest in self.forests)
        branches = f"; {count} of {count} switches where they branch can copy or add" if count else ""
        return {
            "routes": f"{paths} paths follow existing links and pass through switches only",
            "trees": f"{self.num_trees} trees span all {self.num_ranks} ranks; "
            f"tree weights sum to {self.forests[-1].trees_per_root} per unit of each root's {shard}{branches}",
        }

    def rows(self, topology: Topology, busiest: dict[str, str]) -> dict[str, str]:
        """Count trees and their heights; name roots, and the traffic that switches save."""
        return {
            "trees per root": self._per_root,
            "trees": f"{self._numbers}, {self.height_range.text}",
            **busiest,
            **self._roots(topology),
            **self._savings(topology),
        }

    @property
    def _per_root(self) -> str:
        """Count trees by weight, as planners do, unless roots differ: then a root's trees are as many as it needs."""
        forest = self.forests[-1]
        if len(set(forest.root_weights[forest.root_weights > 0].tolist())) == 1:
            return str(forest.trees_per_root)
        different = np.unique(forest.roots, return_counts=True)[1]
        return f"{span_text(different.min(), different.max(), 'distinct tree')}, by the root's share of the data"

    @property
    def _numbers(self) -> str:
        """Count the different trees, and those of both kinds where there are two."""
        text = f"{self.num_trees} distinct"
        if len(self.forests) == 1:
            return text
        return f"{text} ({', '.join(count_text(part.num_trees, f'{part.direction} tree') for part in self.forests)})"

    def _roots(self, topology: Topology) -> dict[str, str]:
        """Roots of an allreduce, unless all ranks have equal shares."""
        weights, total = self.root_weights.tolist(), int(self.total_weight)
        if len(self.phases) == 1 or len(set(weights)) == 1:
            return {}
        shares = sorted({Fraction(weight, total) for weight in weights if weight})
        if shares == [1]:
            return {"roots": f"{topology.compute_nodes[weights.index(total)]} alone reduces all data"}
        ends = " to ".join(f"{percentage_text(part)} ({part})" for part in dict.fromkeys((shares[0], shares[-1])))
        count = sum(weight > 0 for weight in weights)
        return {"roots": f"{count} of {len(weights)} ranks reduce {ends} of the data each"}

    def _savings(self, topology: Topology) -> dict[str, str]:
        """Traffic that switches with multicast or aggregation take off the links, if there are any."""
        if not (topology.multicast or topology.aggregation):
            return {}
        if not (count := len(self.branching_switches)):
            return {"in-network": NO_SWITCH}
        before = sum(int(forest.unicast.link_loads(topology).sum()) for forest in self.forests)
        after = sum(int(forest.link_loads(topology).sum()) for forest in self.forests)
        saved = percentage_text(1 - Fraction(after, before))
        subject = "1 switch copies or adds" if count == 1 else f"{count} switches copy or add"
        return {"in-network": f"{subject}, which saves {saved} of the traffic"}


NO_SWITCH = "no switch copies or adds"


class TreeSequence(Trees):
    """Length, items and iteration of schedules that consist of forests."""

    def __len__(self) -> int:
        """Number of distinct trees."""
        return sum(forest.num_trees for forest in self.forests)

    @overload
    def __getitem__(self, number: int) -> Tree: ...
    @overload
    def __getitem__(self, number: slice) -> tuple[Tree, ...]: ...
    def __getitem__(self, number: int | slice) -> Tree | tuple[Tree, ...]:
        """Tree of this number, from 0, or trees of a slice; negative numbers count from the end."""
        if isinstance(number, slice):
            return tuple(self[position] for position in range(len(self))[number])
        place = index(number) + (len(self) if number < 0 else 0)
        for forest in self.forests:
            if 0 <= place < forest.num_trees:
                root, weight = int(forest.roots[place]), int(forest.weights[place])
                share = Fraction(weight, forest.trees_per_root * forest.total_weight)
                return Tree(root, share, forest.direction, tuple(forest.edges(place)))
            place -= forest.num_trees
        raise IndexError(f"there is no tree {number}; the schedule has {len(self)}")

    def __iter__(self) -> Iterator[Tree]:
        """Yield the trees in order."""
        return (self[number] for number in range(len(self)))


class TreeChunks(NamedTuple):
    """Chunks ``first .. first + chunks - 1`` of all, of the shard of `root`, on one or two trees (-1: none).

    Where shards are items, `root` is the number of the item.
    """

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


def shard_chunks(schedule: Trees) -> tuple[int, ...]:
    """Chunks of every rank's shard."""
    chunk = _chunk_size(schedule)
    return tuple(int(weight / chunk) for weight in schedule.forests[-1].shard_weights.tolist())


def _chunk_size(schedule: Trees) -> Fraction:
    """Largest amount of data, in units of shard weight, that divides the data of every tree."""
    common = lcm(*(forest.trees_per_root for forest in schedule.forests))
    return Fraction(
        gcd(*(common // forest.trees_per_root * gcd(*forest.weights.tolist()) for forest in schedule.forests)), common
    )


def tree_chunks(schedule: Trees, shards: Sequence[int], max_count: int) -> list[TreeChunks]:
    """Assign every tree its chunks, in nearly equal ranges of at most `max_count`."""
    chunk = _chunk_size(schedule)
    return cut_shares({forest.direction: _shares(forest, chunk) for forest in schedule.forests}, shards, max_count)


def chunk_columns(schedule: Trees) -> IntArray:
    """First chunk, reduce tree and broadcast tree (-1: none) of ranges of chunks in order, int64 (3, ranges)."""
    shards = shard_chunks(schedule)
    ranges = tree_chunks(schedule, shards, max_count=max(shards))
    return np.array(sorted((part.first, part.reduce_tree, part.broadcast_tree) for part in ranges)).T


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


def _shares(forest: TreeArrays, chunk: Fraction) -> Iterator[Share]:
    """Yield the share of each tree."""
    share = chunk * forest.trees_per_root
    used: Counter[int] = Counter()
    for tree, (root, weight) in enumerate(zip(forest.shards.tolist(), forest.weights.tolist(), strict=True)):
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


def split_range(begin: int, end: int, limit: int) -> list[tuple[int, int]]:
    """Cut a range into the fewest parts (first, count) of at most `limit`, sizes differing by at most one."""
    if begin == end:
        return []
    number = -(-(end - begin) // limit)
    small, larger = divmod(end - begin, number)
    counts = [small + 1] * larger + [small] * (number - larger)
    return list(zip(accumulate(counts[:-1], initial=begin), counts, strict=True))


def heights_below(forest: TreeArrays) -> IntArray:
    """Shape (trees, ranks): hops from each rank down to the farthest leaf below it."""
    heights = np.zeros(forest.routes.shape, dtype=np.int64)
    for depth in range(int(forest.depths.max()), 0, -1):
        trees, heads = np.nonzero(forest.depths == depth)
        np.maximum.at(heights, (trees, forest.parents[trees, heads]), heights[trees, heads] + 1)
    return heights
