"""Weighted spanning trees with their routes through switches, as arrays, with parents, depths and heights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from ...support.arrays import BoolArray, IntArray, SmallArray, read_only
from ...support.kernels import kernel
from ...topologies import Topology
from ..collective import Direction
from ..schedule import RoutedSchedule
from .switch_vertices import branching, columns, joined_routes, without_leaves

if TYPE_CHECKING:
    from .switch_vertices import Abilities, NumberedRoutes


BLOCK_ENTRIES = 2**19  # tree entries of one block, so that they fit the processor's cache


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


@kernel
def divide(
    weights: IntArray,
    depths: IntArray,
    numbered: NumberedRoutes,
    abilities: Abilities,
    column: IntArray,
    longest: int,
    pieces: IntArray,
) -> None:
    """Write for each vertex the piece of a path on which it receives: ``(path * longest + first) * longest + last``.

    Paths to ranks near the root come first, so that no tree becomes higher.

    Shapes: as in a Forest; `column` int64 (nodes,); `pieces` int64 (trees, vertices), -1 where nothing is received.
    """
    routes, starts, nodes = numbered
    ranks = routes.shape[1]
    supplier = np.empty(len(column), dtype=np.int64)  # the rank on whose path each switch receives
    begins = np.empty(len(column), dtype=np.int64)  # how many paths begin at each switch
    first = np.empty(ranks, dtype=np.int64)
    for tree in range(len(weights)):
        supplier[:] = -1
        begins[:] = 0
        # Each path begins at the last switch on it that has the data already.
        for rank in np.argsort(depths[tree], kind="mergesort")[1:]:
            path = routes[tree, rank]
            begin, length = starts[path], starts[path + 1] - starts[path]
            first[rank] = 0
            for place in range(length - 2, 0, -1):
                switch = nodes[begin + place]
                if supplier[switch] >= 0 and _takes(
                    switch, tree, supplier[switch], first, begins[switch], weights[tree], numbered, abilities
                ):
                    first[rank] = place
                    begins[switch] += 1
                    break
            # Further switches on the path have the data from now on.
            for place in range(first[rank] + 1, length - 1):
                switch = nodes[begin + place]
                if abilities.branches[switch] and supplier[switch] < 0:
                    supplier[switch] = rank
        # Paths end, and new ones begin, at the switches where others begin.
        for rank in range(ranks):
            path = routes[tree, rank]
            if path < 0:
                continue
            begin, length, since = starts[path], starts[path + 1] - starts[path], first[rank]
            for place in range(first[rank] + 1, length):
                node = nodes[begin + place]
                if place == length - 1 or (supplier[node] == rank and begins[node] > 0):
                    pieces[tree, column[node]] = (path * longest + since) * longest + place
                    since = place


@kernel
def _takes(
    switch: int,
    tree: int,
    supplier: int,
    first: IntArray,
    begun: int,
    weight: int,
    numbered: NumberedRoutes,
    abilities: Abilities,
) -> bool:
    """Whether one more path may begin at a switch; reserves links for the copy that the first one loops back."""
    if begun + 3 > abilities.group[switch]:
        return False
    if begun > 0 or not abilities.loops[switch] or first[supplier] > 0:
        return True
    begin = numbered.path_starts[numbered.routes[tree, supplier]]
    end = begin
    while numbered.path_nodes[end] != switch:
        end += 1
    back = abilities.opposite[begin:end]
    for link in back:
        if link < 0 or abilities.room[link] < weight:
            return False
    for link in back:
        abilities.room[link] -= weight
    return True
