"""Transfers of trees: every hop of every range of chunks, with its dependencies.

In an allreduce a transfer without links, from the root to itself, waits for all contributions of the reduction.
"""

from fractions import Fraction

import numpy as np

from ...support.arrays import IntArray
from ...topologies import Topology
from ..transfers import Part, Transfers, concatenate, in_direction, path_links, root_transfers
from .tree_arrays import TreeArrays
from .tree_schedule import TreeChunks, Trees, heights_below, shard_chunks, tree_chunks
from .verify import check_trees


def tree_transfers(schedule: Trees, topology: Topology) -> Transfers:
    """List the hops of trees of one direction, or of a reduction and the broadcast after it."""
    check_trees(schedule)
    return checked_transfers(schedule, topology)


def checked_transfers(schedule: Trees, topology: Topology) -> Transfers:
    """List the hops of trees that were checked."""
    shards = shard_chunks(schedule)
    ranges, unit = tree_chunks(schedule, shards, max_count=max(shards)), Fraction(1, sum(shards))
    if len(schedule.forests) == 1:
        part, pairs, _ = _tree_part(schedule.forests[0], topology, ranges, np.zeros(len(ranges), dtype=np.int64))
        return concatenate([part], unit, [pairs])
    reduce, broadcast = schedule.forests
    before = reduce.heights[np.array([chunks.reduce_tree for chunks in ranges])]
    inwards, inner, ends = _tree_part(reduce, topology, ranges, before)
    roots, firsts, amounts = (np.array(column) for column in zip(*(chunks[:3] for chunks in ranges), strict=True))
    outwards, outer, begins = _tree_part(broadcast, topology, ranges, before)
    first_turn, first_out = len(inwards.senders), len(inwards.senders) + len(ranges)
    waits = [
        inner,
        # The transfers into each root come before its turn, and the turn before those out of it.
        np.stack([ends[0], ends[1] + first_turn]),
        np.stack([begins[1] + first_turn, begins[0] + first_out]),
        outer + first_out,
    ]
    return concatenate([inwards, root_transfers(roots, firsts, amounts, before), outwards], unit, waits)


def _tree_part(
    forest: TreeArrays, topology: Topology, ranges: list[TreeChunks], before: IntArray
) -> tuple[Part, IntArray, tuple[IntArray, IntArray]]:
    """Transfers of the ranges along one forest, their dependencies, and the transfers at roots with their ranges."""
    is_reduce = forest.direction == "reduce"
    trees = np.array([part_range.reduce_tree if is_reduce else part_range.broadcast_tree for part_range in ranges])
    firsts, chunks = np.array([part_range[1:3] for part_range in ranges]).T
    routes = forest.routes[trees]
    owner, vertex = np.nonzero(routes >= 0)
    number = np.full(routes.shape, -1, dtype=np.int64)
    number[owner, vertex] = np.arange(len(owner))
    parent = forest.parents[trees][owner, vertex]
    # The transfer on the edge above the parent; none if the parent is the root.
    above = number[owner, parent]
    inner = above >= 0
    pairs = np.stack([np.flatnonzero(inner), above[inner]])
    own, hops = trees[owner], _hops_before(forest)
    levels = hops[own, vertex] if is_reduce else before[owner] + hops[own, vertex]
    links = path_links(forest.path_starts, forest.path_nodes, topology, forest.direction)
    path_routes = in_direction(links, forest.path_starts - np.arange(len(forest.path_starts)), is_reduce)
    nodes = np.append(np.arange(forest.num_ranks), forest.switches)
    ends = (nodes[vertex], nodes[parent]) if is_reduce else (nodes[parent], nodes[vertex])
    paths = routes[owner, vertex].astype(np.int64)
    part = Part(ends[0], ends[1], firsts[owner], chunks[owner], levels, is_reduce, paths, path_routes)
    at_root = np.flatnonzero(~inner)
    # Looped copies come after the data that the switch received, or in a reduction before its own send.
    looped = np.flatnonzero(forest.looped(topology)[own, vertex])
    if len(looped):
        pairs = np.append(pairs, np.stack([np.arange(len(looped)) + len(owner), looped]), axis=1)
        part = _with_copies_back(part, looped, (forest.path_starts, forest.path_nodes), topology)
    return part, pairs if is_reduce else pairs[::-1], (at_root, owner[at_root])


def _with_copies_back(part: Part, looped: IntArray, paths: tuple[IntArray, IntArray], topology: Topology) -> Part:
    """Append transfers opposite to those that are `looped`, int64 (copies,)."""
    starts, nodes = paths
    used, number = np.unique(part.paths[looped], return_inverse=True)
    lengths = np.diff(starts)[used]
    back = np.concatenate([[0], np.cumsum(lengths)])
    places = np.arange(back[-1]) + np.repeat(starts[used] - back[:-1], lengths)
    links = path_links(back, nodes[places], topology, "broadcast" if part.adds else "reduce")
    hops = in_direction(links, back - np.arange(len(back)), not part.adds)
    return Part(
        np.append(part.senders, part.receivers[looped]),
        np.append(part.receivers, part.senders[looped]),
        np.append(part.firsts, part.firsts[looped]),
        np.append(part.amounts, part.amounts[looped]),
        np.append(part.levels, part.levels[looped]),
        part.adds,
        np.append(part.paths, len(starts) - 1 + number),
        (np.append(part.routes[0], hops[0]), np.append(part.routes[1], hops[1][1:] + part.routes[1][-1])),
    )


def _hops_before(forest: TreeArrays) -> IntArray:
    """Hops between ranks that have to come before each vertex sends (in a reduction) or receives, (trees, vertices).

    A hop through switches of the tree is one.
    """
    ranks, parents = forest.num_ranks, forest.parents
    hops = np.zeros(forest.routes.shape, dtype=np.int64)
    if forest.direction == "broadcast":
        above = parents
        for _ in forest.switches:
            passed = above >= ranks
            if not passed.any():
                break
            above = np.where(passed, np.take_along_axis(parents, np.where(passed, above, 0), axis=1), above)
        return np.where(above >= 0, np.take_along_axis(forest.depths, np.maximum(above, 0), axis=1), 0)
    hops[:, :ranks] = heights_below(forest.unicast)
    trees, vertices = np.nonzero(parents >= ranks)
    for _ in forest.switches:
        before = hops.copy()
        np.maximum.at(hops, (trees, parents[trees, vertices]), hops[trees, vertices])
        if np.array_equal(hops, before):
            break
    return hops
