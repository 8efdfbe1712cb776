"""Hops of trees, numbered in the order of time: hop 1 is what is sent first.

Away from a root that is what the root sends.  Where sums run to a root it is what the leaves send, and a rank sends one
hop after the last that it waits for.  In an allreduce, a tree that spreads sums goes on counting where the tree that
adds them up has ended.  A hop leads from rank to rank; switches between them do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...runtime import Simulation
from ...runtime.lowering.tree_transfers import shard_chunks, strands_of
from ...schedules import Allreduce, Forest
from ...support.arrays import IntArray

if TYPE_CHECKING:
    from ...schedules import Schedule, TreeSchedule

HOPS = "Hop 1 is sent first; each further hop waits for the ones before it."
SUMS_FIRST = "Broadcast trees continue the hop numbers of the reduce trees."
STEPS = "Step 1 is sent first."
"""What pages say of these numbers, and of those of steps."""


class TreeHop(NamedTuple):
    """What goes from one rank to another in a tree.

    `number`: From 1.
    `path`: Node numbers in the order in which data passes them.
    `depth`: Hops between the root and the farther one of the two ranks.
    """

    number: int
    path: tuple[int, ...]
    depth: int


def tree_hops(forest: Forest, tree: int, before: int = 0) -> Iterator[TreeHop]:
    """Yield the hops of a tree, each after those that it waits for.

    Sums of a chain run to its root: the leaf, rank 2, sends first.

    >>> chain = Forest.from_paths(3, 1, [(0, 1, [(0, 1), (1, 2)])], root_weights=[1, 0, 0], direction="reduce")
    >>> [(hop.number, hop.path) for hop in tree_hops(chain, 0)]
    [(1, (2, 1)), (2, (1, 0))]
    """
    edges, depths = list(forest.edges(tree)), forest.depths[tree]
    if forest.direction == "broadcast":
        for edge in edges:
            depth = int(depths[edge.head])
            yield TreeHop(before + depth, edge.path, depth)
        return
    heights = [0] * forest.num_ranks
    for edge in reversed(edges):
        heights[edge.tail] = max(heights[edge.tail], heights[edge.head] + 1)
        yield TreeHop(before + heights[edge.head] + 1, edge.path[::-1], int(depths[edge.head]))


@singledispatch
def hops_before(schedule: TreeSchedule) -> tuple[IntArray, ...]:
    """Count what comes before the first hop of each tree.

    Shapes: returns list of int64 (trees,).
    """
    return (np.zeros(schedule.num_trees, dtype=np.int64),)


@hops_before.register(Allreduce)
def _hops_of_allreduce(schedule: Allreduce) -> tuple[IntArray, ...]:
    adding, spreading = (np.array(trees) for trees in zip(*_pairs(schedule), strict=True))
    before = np.zeros(schedule.broadcast.num_trees, dtype=np.int64)
    np.maximum.at(before, spreading, schedule.reduce.heights[adding])
    return np.zeros(schedule.reduce.num_trees, dtype=np.int64), before


@singledispatch
def numbered(schedule: Schedule, run: Simulation) -> Simulation:  # noqa: ARG001
    """Give the transfers of a run the numbers of their hops, less 1, where these differ from their levels.

    They do for sums that come up trees of several heights and are spread by one: each part of them is a transfer of its
    own, and has as its level what comes before it alone.
    """
    return run


@numbered.register(Allreduce)
def _numbered_allreduce(schedule: Allreduce, run: Simulation) -> Simulation:
    sent, (_, before) = run.transfers, hops_before(schedule)
    shards = shard_chunks(schedule)
    strands = sorted(strands_of(schedule, shards, max_count=max(shards)), key=lambda strand: strand.first)
    later = np.array([before[each.spreading] - schedule.reduce.heights[each.adding] for each in strands])
    if not later.any():
        return run
    strand = np.searchsorted([each.first for each in strands], sent.firsts)
    return replace(run, transfers=replace(sent, levels=sent.levels + np.where(sent.adds, 0, later[strand])))


def _pairs(schedule: Allreduce) -> list[tuple[int, int]]:
    """Trees that add up and spread the same data."""
    shards = shard_chunks(schedule)
    return [(each.adding, each.spreading) for each in strands_of(schedule, shards, max_count=max(shards))]
