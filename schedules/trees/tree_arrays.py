"""Weighted spanning trees as arrays, with parents, depths and heights, and the same trees sent from rank to rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from ...support.arrays import BoolArray, IntArray, SmallArray, joined_rows, read_only
from ...topologies import Topology
from ..collective import Direction
from ..schedule import RoutedSchedule

BLOCK_ENTRIES = 2**19  # tree entries of one block, so that they fit the processor's cache


class NumberedRoutes(NamedTuple):
    """Routes, and the paths that they number."""

    routes: SmallArray  # int32 (trees, vertices)
    path_starts: IntArray
    path_nodes: IntArray


def columns(nodes: IntArray, num_ranks: int, switches: IntArray) -> IntArray:
    """Look up nodes among the vertices of trees: ranks, then `switches`; other nodes keep numbers beyond all columns.

    Shapes: any shape of `nodes`, returned.
    """
    if not len(switches):
        return nodes
    size = num_ranks + len(switches)
    lookup = np.arange(max(int(nodes.max(initial=0)), int(switches.max())) + 2) + size
    lookup[:num_ranks] = np.arange(num_ranks)
    lookup[switches] = np.arange(num_ranks, size)
    lookup[-1] = -1
    return lookup[nodes]


def num_children(parents: IntArray) -> IntArray:
    """How many vertices each vertex hands its data on to, shape (trees, vertices)."""
    children = np.zeros(parents.shape, dtype=np.int64)
    trees, vertices = np.nonzero((parents >= 0) & (parents < parents.shape[1]))
    np.add.at(children, (trees, parents[trees, vertices]), 1)
    return children


def branching(parents: IntArray, num_ranks: int) -> BoolArray:
    """Whether each vertex is a switch that hands data on to two vertices, or to another switch; (trees, vertices)."""
    children = np.zeros(parents.shape, dtype=np.int64)
    trees, vertices = np.nonzero((parents >= num_ranks) & (parents < parents.shape[1]))
    np.add.at(children, (trees, parents[trees, vertices]), np.where(vertices < num_ranks, 1, 2))
    return children >= 2


def without_leaves(parents: IntArray, num_ranks: int) -> IntArray:
    """Leave out switches that hand data on to nobody, and those above them that then do not either.

    Shapes: `parents`, returned, int64 (trees, vertices); -1 where a vertex is not part of a tree any more.
    """
    while True:
        idle = (num_children(parents) == 0) & (parents >= 0)
        idle[:, :num_ranks] = False
        if not idle.any():
            return parents
        parents = np.where(idle, -1, parents)


def joined_routes(
    routes: SmallArray, parents: IntArray, kept: BoolArray, path_starts: IntArray, path_nodes: IntArray
) -> NumberedRoutes:
    """Join the paths into and out of vertices that are not kept, so that data passes them on one path.

    Shapes: `routes`, `parents`, `kept` (trees, vertices).
    """
    chains = [np.where(kept, routes, -1).astype(np.int64)]
    above, last = parents, routes.shape[1]
    for _ in range(last):
        place = np.where((above >= 0) & (above < last), above, 0)
        passed = (place == above) & ~np.take_along_axis(kept, place, axis=1) & kept
        if not passed.any():
            break
        chains.append(np.where(passed, np.take_along_axis(routes, place, axis=1), -1))
        above = np.where(passed, np.take_along_axis(parents, place, axis=1), above)
    rows = np.stack(chains, axis=-1)
    used = rows[..., 0] >= 0
    kinds, numbers = np.unique(rows[used], axis=0, return_inverse=True)
    joined = np.full(used.shape, -1, dtype=np.int32)
    joined[used] = numbers.ravel()
    paths = [_joined(chain, path_starts, path_nodes) for chain in kinds.tolist()]
    return NumberedRoutes(joined, *joined_rows(paths))


def _joined(chain: list[int], starts: IntArray, nodes: IntArray) -> list[int]:
    """Nodes along a chain of paths, from the last in `chain` to the first, with loops cut off."""
    path: list[int] = []
    for number in reversed(chain):
        if number < 0:
            continue
        for node in nodes[starts[number] : starts[number + 1]].tolist():
            if node in path:
                del path[path.index(node) :]
            path.append(node)
    return path


def depth_blocks(parents: IntArray, roots: IntArray) -> Iterator[IntArray]:
    """Yield how many hops each vertex is from its root, a block of trees after the other.

    Shapes: `parents` int64 (trees, vertices); `roots` int64 (trees,); yields int64 (trees of the block, vertices).
    """
    trees, vertices = parents.shape
    size = max(1, BLOCK_ENTRIES // max(1, vertices))
    for first in range(0, trees, size):
        block = slice(first, first + size)
        yield _depths(parents[block], roots[block, None])


def _depths(parents: IntArray, roots: IntArray) -> IntArray:
    """Hops to the root by pointer doubling."""
    count, ranks = parents.shape
    own = np.arange(ranks)
    stays = (own == roots) | (parents < 0) | (parents >= ranks)
    # Places in the flattened block, which are quicker to follow than columns.
    base = np.arange(count)[:, None] * ranks
    ancestors = (np.where(stays, own, parents) + base).ravel()
    hops = (~stays).astype(np.int64).ravel()
    goals = np.broadcast_to(roots + base, parents.shape).ravel()
    for _ in range(ranks.bit_length()):
        arrived = ancestors == goals
        if arrived.all():
            break
        hops += hops[ancestors]
        ancestors = ancestors[ancestors]
    hops[ancestors != goals] = ranks
    depths: IntArray = hops.reshape(parents.shape)
    return depths


class TreeEdge(NamedTuple):
    """One hop of a tree: `tail` sends to `head`, ranks or switches where it branches, along `path` with both ends."""

    tail: int
    head: int
    path: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TreeArrays(RoutedSchedule):
    """The data of a `Forest`, which describes them: all that its check and its transfers rest on."""

    num_ranks: int
    trees_per_root: int
    roots: IntArray
    weights: IntArray
    routes: SmallArray
    path_starts: IntArray
    path_nodes: IntArray
    root_weights: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    direction: Direction = "broadcast"
    switches: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __post_init__(self) -> None:
        """Set equal shards if no weights are given, and make the arrays read-only."""
        super().__post_init__()
        if not len(self.root_weights):
            object.__setattr__(self, "root_weights", read_only(np.ones(self.num_ranks, dtype=np.int64)))

    @property
    def num_trees(self) -> int:
        """Number of distinct trees; a tree of weight w counts once."""
        return len(self.roots)

    @property
    def shards(self) -> IntArray:
        """Number of the shard that each tree carries, int64 (trees,): that of its root."""
        return self.roots

    @property
    def shard_weights(self) -> IntArray:
        """Units of data of each shard."""
        return self.root_weights

    @cached_property
    def parents(self) -> IntArray:
        """Shape (trees, vertices): the vertex that each one receives from; -1 at the root and outside of the tree."""
        senders = np.append(self.path_nodes[self.path_starts[:-1]], -1)  # of each path, -1 for no path
        return read_only(columns(senders, self.num_ranks, self.switches)[self.routes])

    @cached_property
    def unicast(self) -> Self:
        """The same trees without switches among their vertices: every copy is sent from rank to rank."""
        if not len(self.switches):
            return self
        return self._joined(np.broadcast_to(np.arange(self.routes.shape[1]) < self.num_ranks, self.routes.shape))

    def tidied(self) -> Self:
        """Leave out switches that hand a tree on to one rank or to nobody; paths pass them instead."""
        if not len(self.switches):
            return self
        parents = without_leaves(self.parents, self.num_ranks)
        kept = branching(parents, self.num_ranks)
        kept[:, : self.num_ranks] = True
        return self._joined(kept)

    def _joined(self, kept: BoolArray) -> Self:
        """Join paths at the vertices that are not in the mask `kept`, shape (trees, vertices)."""
        joined = joined_routes(self.routes, self.parents, kept, self.path_starts, self.path_nodes)
        used = kept[:, self.num_ranks :].any(axis=0)
        columns = np.append(np.ones(self.num_ranks, dtype=np.bool_), used)
        return replace(
            self, switches=self.switches[used], **joined._replace(routes=joined.routes[:, columns])._asdict()
        )

    def edges(self, tree: int) -> Iterator[TreeEdge]:
        """Yield the hops of one tree, each after the hop that brings data to its sender."""
        hops = next(depth_blocks(self.parents[tree : tree + 1], self.roots[tree : tree + 1]))[0]
        for head in np.lexsort((np.arange(len(hops)), hops)).tolist():
            if (route := int(self.routes[tree, head])) >= 0:
                path = self.path(route)
                yield TreeEdge(path[0], path[-1], path)

    @cached_property
    def depths(self) -> IntArray:
        """Shape (trees, num_ranks): hops between ranks from the root; a path through switches counts one.

        Ranks that a malformed tree never reaches get ``num_ranks``.
        """
        blocks = depth_blocks(self.unicast.parents, self.roots)
        return read_only(np.concatenate([np.empty((0, self.num_ranks), dtype=np.int64), *blocks]))

    @cached_property
    def heights(self) -> IntArray:
        """Shape (trees,): the largest depth of each tree."""
        blocks = depth_blocks(self.unicast.parents, self.roots)
        return read_only(np.concatenate([np.empty(0, dtype=np.int64), *(block.max(axis=1) for block in blocks)]))

    def looped(self, topology: Topology) -> BoolArray:
        """Whether each vertex is a switch that loops copies back to the rank above it, shape (trees, vertices)."""
        above = self.parents
        back = np.isin([topology.nodes[node] for node in self.switches.tolist()], list(topology.loopback))
        if not back.any():
            return np.zeros(above.shape, dtype=np.bool_)
        looped = branching(above, self.num_ranks) & (above >= 0) & (above < self.num_ranks)
        looped[:, self.num_ranks :] &= back
        return looped
