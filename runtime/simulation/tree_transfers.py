"""The transfers of every schedule, and how those of trees are made; see `collopt.runtime.simulation.transfers`.

Trees.  Each strand of `collopt.runtime.lowering.tree_transfers` makes one transfer per edge of its tree.  Away from the
root a rank sends what it has got from its parent, towards the root a sum once all its children's have come.  In an
allreduce, the strand turns at the root: a transfer without links, from the root to itself, waits for all sums.

Levels count what has to come before a transfer, as those of the global order of
`collopt.runtime.lowering.tree_transfers` do.
"""

from __future__ import annotations

from fractions import Fraction
from functools import singledispatch

import numpy as np

from ...errors import UnsupportedError
from ...schedules import Allreduce, FlowSchedule, Forest, Schedule, StepAllreduce, StepSchedule, TreeSchedule
from ...schedules.paths.congestion import path_links
from ...support.arrays import IntArray
from ...support.validation import shown
from ...topologies import Topology
from ..lowering.tree_transfers import Strand, check_forest, check_halves, shard_chunks, strands_of
from .step_transfers import flow_transfers, step_transfers
from .transfers import Part, Transfers, in_direction, joined


@singledispatch
def transfers_of(schedule: Schedule, topology: Topology) -> Transfers:  # noqa: ARG001
    """List the transfers of a schedule.

    Two ranks exchange their halves:

    >>> from collopt.topologies import ring
    >>> both = transfers_of(Forest.from_paths(2, 1, [(0, 1, [(0, 1)]), (1, 1, [(1, 0)])]), ring(2))
    >>> both.senders.tolist(), both.receivers.tolist(), both.firsts.tolist(), both.unit
    ([0, 1], [1, 0], [0, 1], Fraction(1, 2))
    """
    raise UnsupportedError(f"the schedule is {shown(schedule)}; expected trees, steps or a flow")


transfers_of.register(StepSchedule)(step_transfers)
transfers_of.register(StepAllreduce)(step_transfers)
transfers_of.register(FlowSchedule)(flow_transfers)


@transfers_of.register(Forest)
def _of_forest(forest: Forest, topology: Topology) -> Transfers:
    strands, unit = _strands(forest)
    part, pairs, _ = _tree_part(forest, topology, strands, 0)
    return joined([part], unit, [pairs])


@transfers_of.register(Allreduce)
def _of_allreduce(schedule: Allreduce, topology: Topology) -> Transfers:
    check_halves(schedule)
    strands, unit = _strands(schedule)
    adding, spreading, tops = schedule.reduce, schedule.broadcast, np.array([each.adding for each in strands])
    before = adding.heights[tops]
    inwards, inner, ends = _tree_part(adding, topology, strands, 0)
    turns = _turns(strands, before)
    outwards, outer, begins = _tree_part(spreading, topology, strands, before)
    first_turn, first_out = len(inwards.senders), len(inwards.senders) + len(strands)
    waits = [
        inner,
        # The transfers into each root come before its turn, and the turn before those out of it.
        np.stack([ends[0], ends[1] + first_turn]),
        np.stack([begins[1] + first_turn, begins[0] + first_out]),
        outer + first_out,
    ]
    return joined([inwards, turns, outwards], unit, waits)


def _strands(schedule: TreeSchedule) -> tuple[list[Strand], Fraction]:
    """Divide the data of trees, as finely as their weights need, and say what share of all data a chunk is."""
    for forest in schedule.forests:
        check_forest(forest)
    shards = shard_chunks(schedule)
    return strands_of(schedule, shards, max_count=max(shards)), Fraction(1, sum(shards))


def _tree_part(
    forest: Forest, topology: Topology, strands: list[Strand], before: IntArray | int
) -> tuple[Part, IntArray, tuple[IntArray, IntArray]]:
    """Transfers of the strands along one forest, pairs of them that wait, and those at roots, each with its strand."""
    inwards = forest.direction == "reduce"
    trees = np.array([strand.adding if inwards else strand.spreading for strand in strands])
    routes, parents = forest.routes[trees], forest.parents[trees]
    strand, rank = np.nonzero(routes >= 0)
    number = np.full(routes.shape, -1, dtype=np.int64)
    number[strand, rank] = np.arange(len(strand))
    parent = parents[strand, rank]
    # The transfer on the edge above the parent; none if the parent is the root.
    above = number[strand, parent]
    inner = above >= 0
    pairs = np.stack([np.flatnonzero(inner), above[inner]])
    if inwards:
        levels = _heights_below(forest, trees)[strand, rank]
    else:
        levels = np.broadcast_to(before, len(strands))[strand] + forest.depths[trees][strand, rank] - 1
    senders, receivers = (rank, parent) if inwards else (parent, rank)
    part = Part(
        senders,
        receivers,
        np.array([each.first for each in strands])[strand],
        np.array([each.chunks for each in strands])[strand],
        levels,
        inwards,
        routes[strand, rank].astype(np.int64),
        _routes(forest, topology),
    )
    at_root = np.flatnonzero(~inner)
    return part, pairs if inwards else pairs[::-1], (at_root, strand[at_root])


def _heights_below(forest: Forest, trees: IntArray) -> IntArray:
    """Shape (strands, ranks): hops from each rank to the farthest leaf below it."""
    depths, parents = forest.depths[trees], forest.parents[trees]
    heights = np.zeros(depths.shape, dtype=np.int64)
    for depth in range(int(depths.max()), 0, -1):
        strand, rank = np.nonzero(depths == depth)
        np.maximum.at(heights, (strand, parents[strand, rank]), heights[strand, rank] + 1)
    return heights


def _turns(strands: list[Strand], levels: IntArray) -> Part:
    """One transfer per strand from its root to itself, over no link."""
    roots, firsts, chunks = (np.array(column) for column in zip(*(strand[:3] for strand in strands), strict=True))
    nowhere = np.full(len(strands), -1, dtype=np.int64)
    empty = np.empty(0, dtype=np.int64)
    return Part(roots, roots, firsts, chunks, levels, False, nowhere, (empty, np.zeros(1, dtype=np.int64)))


def _routes(forest: Forest, topology: Topology) -> tuple[IntArray, IntArray]:
    links = path_links(forest.path_starts, forest.path_nodes, topology, forest.direction)
    return in_direction(links, forest.path_starts - np.arange(len(forest.path_starts)), forest.direction == "reduce")
