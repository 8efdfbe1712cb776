"""Transfers of a schedule of any kind: trees, steps or flows.

In an allreduce a transfer without links, from the root to itself, waits for all contributions of the reduction.  In
steps, a send waits for all sends of earlier steps that bring its sender some of the same chunks (reduce-scatter:
reversed).
"""

from dataclasses import replace
from fractions import Fraction
from functools import singledispatch
from math import lcm

import numpy as np

from ...errors import CapacityOverflowError, UnsupportedError
from ...support.arrays import IntArray
from ...support.validation import shown
from ...topologies import Topology
from ..paths.congestion import path_links
from ..paths.schedule import Schedule
from ..steps.allreduce import AnyStepSchedule, StepAllreduce, StepExchange
from ..steps.flow import FlowSchedule
from ..steps.sends import StepSends
from ..steps.step_schedule import StepSchedule
from ..trees.allreduce import Allreduce, TreeSchedule
from ..trees.forest import Forest
from ..trees.symmetric_forest import expanding
from ..trees.tree_chunks import TreeChunks, heights_below, shard_chunks, tree_chunks
from ..trees.verify import check_trees
from .transfers import Part, Transfers, concatenate, in_direction

MAX_CHUNKS = 2**62


def step_transfers(schedule: AnyStepSchedule, topology: Topology) -> Transfers:
    """List the transfers of a schedule in steps; see `transfers_of`."""
    shard = lcm(*(half.chunks_per_shard for half in schedule.schedules))
    if shard * schedule.num_ranks >= MAX_CHUNKS:
        raise CapacityOverflowError(
            f"the schedule cuts the data into {shard * schedule.num_ranks} chunks; expected fewer than 2^62"
        )
    unit = Fraction(1, shard * schedule.num_ranks)
    if isinstance(schedule, StepSchedule):
        return concatenate([_step_part(schedule, topology, shard, 0)], unit, [_step_dependencies(schedule)])
    reduce, broadcast = schedule.schedules
    is_reduce = _step_part(reduce, topology, shard, 0)
    outwards = _step_part(broadcast, topology, shard, reduce.num_steps)
    ends = np.flatnonzero(is_reduce.receivers == reduce.sources)
    begins = np.flatnonzero(outwards.senders == broadcast.sources)
    places = _boundaries([(is_reduce, ends), (outwards, begins)], schedule.num_ranks, shard)
    own = places[:-1] // shard
    root_transfers = _root_transfers(own, places[:-1], np.diff(places), np.full_like(own, reduce.num_steps))
    first_turn = reduce.num_sends
    first_out = first_turn + len(places) - 1
    before, turn = _intervals(places, is_reduce, ends)
    after, turn_after = _intervals(places, outwards, begins)
    waits = [
        _step_dependencies(reduce),
        np.stack([before, turn + first_turn]),
        np.stack([turn_after + first_turn, after + first_out]),
        _step_dependencies(broadcast) + first_out,
    ]
    return concatenate([is_reduce, root_transfers, outwards], unit, waits)


def _boundaries(parts: list[tuple[Part, IntArray]], ranks: int, shard: int) -> IntArray:
    """Chunk numbers at which a shard, or one of these transfers' ranges, begins or ends."""
    firsts = [part.firsts[numbers] for part, numbers in parts]
    lasts = [part.firsts[numbers] + part.amounts[numbers] for part, numbers in parts]
    return np.unique(np.concatenate([np.arange(ranks + 1) * shard, *firsts, *lasts]))


def _intervals(places: IntArray, part: Part, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs of a transfer and an interval between two boundaries that it carries."""
    first = np.searchsorted(places, part.firsts[numbers])
    counts = np.searchsorted(places, part.firsts[numbers] + part.amounts[numbers]) - first
    intervals = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.repeat(numbers, counts), intervals


def _ends(schedule: StepSends) -> tuple[IntArray, IntArray]:
    """First and last rank of the path of each send."""
    starts, nodes = schedule.path_starts, schedule.path_nodes
    return nodes[starts[:-1]][schedule.routes], nodes[starts[1:] - 1][schedule.routes]


def _step_part(schedule: StepSchedule, topology: Topology, shard: int, done: int) -> Part:
    """Sends as transfers, after `done` steps of another schedule."""
    is_reduce, scale = schedule.direction == "reduce", shard // schedule.chunks_per_shard
    tails, heads = _ends(schedule)
    steps = schedule.num_steps - 1 - schedule.steps if is_reduce else schedule.steps
    starts = schedule.path_starts - np.arange(len(schedule.path_starts))
    senders, receivers = (heads, tails) if is_reduce else (tails, heads)
    return Part(
        senders,
        receivers,
        schedule.sources * shard + schedule.lower * scale,
        (schedule.upper - schedule.lower) * scale,
        done + steps,
        is_reduce,
        schedule.routes,
        in_direction(schedule.path_links(topology), starts, is_reduce),
    )


def _step_dependencies(schedule: StepSchedule) -> IntArray:
    """Pairs of sends (before, after), of which the second waits for the first, shape (2, waits)."""
    pairs = _arrivals_before(schedule, schedule.sources)
    return pairs[::-1] if schedule.direction == "reduce" else pairs


def _arrivals_before(schedule: StepSends, sources: IntArray) -> IntArray:
    """Pairs of a send and a later one that passes on some of its chunks of the same source, shape (2, pairs)."""
    tails, heads = _ends(schedule)
    used, step = np.unique(schedule.steps, return_inverse=True)
    group_in, group_out = ((sources * schedule.num_ranks + ends) * len(used) for ends in (heads, tails))
    order = np.argsort(group_in + step, kind="stable")
    # All arrivals of chunks of one source at one rank in steps before a departure from it.
    first, last = (np.searchsorted((group_in + step)[order], keys) for keys in (group_out, group_out + step))
    counts = last - first
    arrivals = order[np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())]
    departures = np.repeat(np.arange(schedule.num_sends), counts)
    meet = (schedule.lower[arrivals] < schedule.upper[departures]) & (
        schedule.lower[departures] < schedule.upper[arrivals]
    )
    return np.stack([arrivals[meet], departures[meet]])


def flow_transfers(schedule: FlowSchedule, topology: Topology) -> Transfers:
    """List the transfers of a flow; see `transfers_of`."""
    nodes, starts = schedule.path_nodes, schedule.path_starts
    at_rank = nodes < schedule.num_ranks
    owners = np.repeat(np.arange(schedule.num_paths), np.diff(starts))
    last = np.zeros(len(nodes), dtype=np.bool_)
    last[starts[1:] - 1] = True
    # Every rank on a path but its last node begins a transfer, which ends at the next rank of the path.
    stops = np.flatnonzero(at_rank)
    begins = ~last[stops]
    tails, heads = stops[begins], stops[np.flatnonzero(begins) + 1]
    paths = owners[tails]
    onward = np.flatnonzero(paths[1:] == paths[:-1])
    # Chunks of each source are counted from 0, path by path.
    order = np.argsort(schedule.sources, kind="stable")
    ahead = np.cumsum(schedule.weights[order]) - schedule.weights[order]
    first_of_source = np.searchsorted(schedule.sources[order], schedule.sources[order])
    offsets = np.empty(schedule.num_paths, dtype=np.int64)
    offsets[order] = ahead - ahead[first_of_source]
    # The number of a node, less one for each path that ended before it, is that of the hop that begins there.
    limits = np.append(tails - paths, len(nodes) - schedule.num_paths)
    of_path = offsets[paths], schedule.weights[paths], schedule.steps[limits[:-1]]
    hops = schedule.hop_links(topology), limits
    part = Part(nodes[tails], nodes[heads], *of_path, False, np.arange(len(tails)), hops)
    unit = 1 / (schedule.total_weight * schedule.chunks_per_unit)
    return concatenate([part], unit, [np.stack([onward, onward + 1])])


@singledispatch
def transfers_of(schedule: Schedule, topology: Topology) -> Transfers:  # noqa: ARG001
    """List the transfers of a schedule; other kinds of schedules register here."""
    raise UnsupportedError(f"the schedule is {shown(schedule)}; expected trees, steps or a flow")


transfers_of.register(StepSchedule)(step_transfers)
transfers_of.register(StepAllreduce)(step_transfers)
transfers_of.register(FlowSchedule)(flow_transfers)
expanding(transfers_of)


@transfers_of.register(StepExchange)
def _of_exchange(schedule: StepExchange, topology: Topology) -> Transfers:
    starts = schedule.path_starts - np.arange(len(schedule.path_starts))
    amounts, routes = schedule.upper - schedule.lower, (schedule.path_links(topology), starts)
    part = Part(*_ends(schedule), schedule.lower, amounts, schedule.steps, False, schedule.routes, routes)
    waits = _arrivals_before(schedule, np.zeros_like(schedule.steps))
    return replace(concatenate([part], Fraction(1, schedule.chunks), [waits]), adds=schedule.adds)


@transfers_of.register(Forest)
def _of_forest(forest: Forest, topology: Topology) -> Transfers:
    ranges, unit = _chunk_ranges(forest)
    part, pairs, _ = _tree_part(forest, topology, ranges, np.zeros(len(ranges), dtype=np.int64))
    return concatenate([part], unit, [pairs])


@transfers_of.register(Allreduce)
def _of_allreduce(schedule: Allreduce, topology: Topology) -> Transfers:
    ranges, unit = _chunk_ranges(schedule)
    before = schedule.reduce.heights[np.array([each.reduce_tree for each in ranges])]
    is_reduce, inner, ends = _tree_part(schedule.reduce, topology, ranges, before)
    roots, firsts, chunks = (np.array(column) for column in zip(*(each[:3] for each in ranges), strict=True))
    outwards, outer, begins = _tree_part(schedule.broadcast, topology, ranges, before)
    first_turn, first_out = len(is_reduce.senders), len(is_reduce.senders) + len(ranges)
    waits = [
        inner,
        # The transfers into each root come before its turn, and the turn before those out of it.
        np.stack([ends[0], ends[1] + first_turn]),
        np.stack([begins[1] + first_turn, begins[0] + first_out]),
        outer + first_out,
    ]
    return concatenate([is_reduce, _root_transfers(roots, firsts, chunks, before), outwards], unit, waits)


def _chunk_ranges(schedule: TreeSchedule) -> tuple[list[TreeChunks], Fraction]:
    """Divide the data of trees into chunk ranges; also return the share of all data that a chunk is."""
    check_trees(schedule)
    shards = shard_chunks(schedule)
    return tree_chunks(schedule, shards, max_count=max(shards)), Fraction(1, sum(shards))


def _tree_part(
    forest: Forest, topology: Topology, ranges: list[TreeChunks], before: IntArray
) -> tuple[Part, IntArray, tuple[IntArray, IntArray]]:
    """Transfers of the ranges along one forest, their dependencies, and the transfers at roots with their ranges."""
    is_reduce = forest.direction == "reduce"
    trees = np.array([each.reduce_tree if is_reduce else each.broadcast_tree for each in ranges])
    firsts, chunks = np.array([each[1:3] for each in ranges]).T
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
    # Copies that a switch loops back come after what it received, or before what it sends in a reduction.
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


def _hops_before(forest: Forest) -> IntArray:
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


def _root_transfers(roots: IntArray, firsts: IntArray, amounts: IntArray, levels: IntArray) -> Part:
    """One transfer per range from its root to itself, over no link."""
    no_paths = (np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
    return Part(roots, roots, firsts, amounts, levels, False, np.full_like(roots, -1), no_paths)
