"""Strength of a network of bidirectional links, and an orientation of its links for as large a tree packing.

The strength is the minimum of ``(d(S_1) + .. + d(S_p)) / (2 (p - 1))`` over disjoint node sets, p >= 2, that each hold
a rank and together hold all (Cunningham, 1985); Newton's method and Dilworth truncation find it.  The orientation lets
every rank receive all trees (Edmonds, 1973).  Proofs: docs/explanation/algorithms.md.
"""

from fractions import Fraction
from math import gcd
from typing import NamedTuple

import numpy as np

from ...errors import SolverError
from ...support import progress
from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel, kernel_with
from ..flows.max_flow import (
    CAPACITY_LIMIT,
    FlowNetwork,
    augment,
    check_capacities,
    distances_to_sink,
    flow_network,
    solve_network,
    steps_of_sinks,
)


class NodeWeightedCuts(NamedTuple):
    """A flow network whose arcs are the links, then one arc per node to a sink and one from a source."""

    network: FlowNetwork  # the last nodes are the sink and the source
    num_links: int  # link ``i`` is the arcs ``2 i`` and ``2 i + 1``
    num_ranks: int  # ranks are the first nodes; then come switches
    residual: IntArray  # int64 (arcs,), of the last cut
    scratch: IntArray  # int64 (4, nodes): ``scratch[0] < 0`` on the inside of the last cut


def _steps_of_cuts(cuts: NodeWeightedCuts, _: int, begin: int, end: int, *__: object) -> int:
    return steps_of_sinks(cuts.network, None, begin, end)


def node_weighted_cuts(
    num_nodes: int, num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray
) -> NodeWeightedCuts:
    """Build a network for node-weighted cuts."""
    nodes, nothing = np.arange(num_nodes), np.zeros(num_nodes, dtype=np.int64)
    network = flow_network(
        num_nodes + 2,
        np.concatenate([tails, nodes, np.full(num_nodes, num_nodes + 1)]),
        np.concatenate([heads, np.full(num_nodes, num_nodes), nodes]),
        np.concatenate([capacities, nothing, nothing]),
        np.concatenate([capacities, nothing, nothing]),
    )
    scratch = np.empty((4, num_nodes + 2), dtype=np.int64)
    return NodeWeightedCuts(network, len(tails), num_ranks, np.empty_like(network.capacities), scratch)


@kernel
def min_cut_around(cuts: NodeWeightedCuts, factor: int, node_weights: IntArray, rank: int, active: BoolArray) -> int:
    """Minimize ``factor c(S) + weight(S without rank)`` over sets S with `rank` inside and inactive nodes outside.

    The largest minimizer is left where ``cuts.scratch[0] < 0``.  Shapes: `node_weights` int64 (ranks,); `active` bool
    (nodes,).
    """
    heads, capacities, num_links, residual = cuts.network.heads, cuts.network.capacities, cuts.num_links, cuts.residual
    sink = len(cuts.network.first_arc) - 2
    costs = np.zeros(sink, dtype=np.int64)  # of having a node inside
    costs[: cuts.num_ranks] = node_weights
    costs[rank] = 0
    residual[:] = 0
    for arc in range(0, 2 * num_links, 2):
        head, tail = heads[arc], heads[arc + 1]
        amount = factor * capacities[arc]
        if active[tail] and active[head]:
            residual[arc] = residual[arc + 1] = amount
        elif active[tail]:
            costs[tail] += amount
        elif active[head]:
            costs[head] += amount
    value: int = 0
    for node in range(sink):
        out = 2 * (num_links + node)
        if active[node] and costs[node] >= 0:
            residual[out] = costs[node]
        elif active[node]:
            residual[out + 2 * sink] = -costs[node]
            value += costs[node]
    residual[2 * (num_links + rank + sink)] = CAPACITY_LIMIT
    value += augment(cuts.network, residual, sink + 1, sink, CAPACITY_LIMIT, cuts.scratch)
    return value


@kernel
def add_switches(cuts: NodeWeightedCuts, parts: int, sets: IntArray) -> None:
    """Label switches in disjoint `sets`, int64 (nodes,), by the part, from 0, whose smallest minimum cut contains them.

    Of two sets that share switches, neither has a larger cut without them.
    """
    network, residual, scratch = cuts.network, cuts.residual, cuts.scratch
    sink = len(network.first_arc) - 2
    for part in range(parts):
        residual[:] = network.capacities
        # The part is the sink: the nodes that reach it in the residual network are the smallest set.
        for rank in range(cuts.num_ranks):
            out = 2 * (cuts.num_links + rank)
            residual[out if sets[rank] == part else out + 2 * sink] = CAPACITY_LIMIT
        augment(network, residual, sink + 1, sink, CAPACITY_LIMIT, scratch)
        distances_to_sink(network, residual, sink, -1, scratch[0], scratch[2])
        for node in range(cuts.num_ranks, sink):
            if scratch[0, node] >= 0:
                sets[node] = part


class Strength(NamedTuple):
    """The strength of a network and a family of sets that has it."""

    value: Fraction  # in units of capacity
    labels: IntArray  # int64 (nodes,): number of the set that each node is in, from 0; -1 for switches in none


def strength(num_nodes: int, num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray) -> Strength:
    """Find the strength of a network and a family of sets that has it, exactly."""
    # Capacities are multiplied by denominators of at most 2 (num_ranks - 1); demands are at most four times the total.
    check_capacities(16 * sum(map(int, capacities)) * num_ranks)
    labels = np.where(np.arange(num_nodes) < num_ranks, np.arange(num_nodes), -1)
    # Index of every node in the contracted network, where the parts come first.
    groups, parts = np.arange(num_nodes), num_ranks
    value = _ratio(labels, tails, heads, capacities)
    while value > 0:
        ends = groups[tails], groups[heads]
        separate = ends[0] != ends[1]
        cuts = node_weighted_cuts(
            int(groups.max()) + 1, parts, ends[0][separate], ends[1][separate], capacities[separate]
        )
        blocks = np.unique(_blocks(cuts, value), return_inverse=True)[1]
        parts = int(blocks.max()) + 1
        if parts == 1:
            return Strength(value, labels)
        sets = np.full(len(cuts.network.first_arc) - 2, -1, dtype=np.int64)
        sets[: len(blocks)] = blocks
        if len(sets) > len(blocks):
            add_switches(cuts, parts, sets)
        better = _ratio(sets[groups], tails, heads, capacities)
        if better == value:
            return Strength(value, labels)
        labels, value = sets[groups], better
        # Switches in no set stay nodes of their own, after the sets.
        sets[sets < 0] = parts + np.arange(int((sets < 0).sum()))
        groups = sets[groups]
    raise SolverError("the links do not connect the ranks; the strength is 0")


def _ratio(labels: IntArray, tails: IntArray, heads: IntArray, capacities: IntArray) -> Fraction:
    """Return the value of a family of sets."""
    ends = np.stack([labels[tails], labels[heads]])
    crossings = (ends >= 0).sum(axis=0) * (ends[0] != ends[1])
    return Fraction(int((crossings * capacities).sum()), 2 * int(labels.max()))


def _blocks(cuts: NodeWeightedCuts, value: Fraction) -> IntArray:
    """Compute the least demands of all ranks in turn; return the blocks, labeled by one of their ranks."""
    factor, level = value.denominator, 2 * value.numerator
    demands, blocks = np.zeros(cuts.num_ranks, dtype=np.int64), np.arange(cuts.num_ranks)
    for begin, end in progress.batches(cuts.num_ranks):
        _merge_blocks(cuts, factor, level, begin, end, demands, blocks)
    return blocks


@kernel
def _merge_blocks(
    cuts: NodeWeightedCuts, factor: int, level: int, begin: int, end: int, demands: IntArray, blocks: IntArray
) -> None:
    """Compute the demands of ranks ``begin .. end - 1`` and merge each with the blocks whose constraint is tight."""
    active = np.arange(len(cuts.network.first_arc)) >= cuts.num_ranks
    active[:begin] = True
    for rank in range(begin, end):
        active[rank] = True
        demands[rank] = level - min_cut_around(cuts, factor, demands, rank, active)
        for other in range(rank):
            if cuts.scratch[0, other] < 0:
                blocks[other] = rank


class Orientation(NamedTuple):
    """Capacity for trees on every link and direction, and the roots of the trees."""

    # Trees per unit of capacity: ``forward + backward`` is at most ``scale`` times the capacity of a link
    scale: Fraction
    supplies: IntArray  # int64 (ranks,): number of trees that start at each rank; together ``scale`` times the strength
    forward: IntArray  # int64 (links,): trees that each link may carry from its tail to its head
    backward: IntArray  # int64 (links,): trees that each link may carry from its head to its tail


def orient(
    num_nodes: int, num_ranks: int, tails: IntArray, heads: IntArray, capacities: IntArray, best: Strength
) -> Orientation:
    """Orient links for as many trees as the strength allows, in integers and with balanced numbers of roots.

    If an even split of every link allows it, all ranks have equally many roots; otherwise the numbers differ by one.
    """
    # Half of each link is a whole number of trees.
    level, half = 2 * best.value.numerator, best.value.denominator
    even = num_ranks // gcd(num_ranks, level)
    check_capacities(4 * even * half * sum(map(int, capacities)))
    supplies = np.full(num_ranks, level * even // num_ranks)
    demands = balanced_demands(num_nodes, tails, heads, capacities * half * even, level * even, supplies)
    if np.array_equal(demands, supplies):
        half *= even
    else:
        # Links are not split evenly in any case, and coarser units give fewer trees.
        supplies = level // num_ranks + (np.arange(num_ranks) < level % num_ranks)
        demands = balanced_demands(num_nodes, tails, heads, capacities * half, level, supplies)
    halves = capacities * half
    shift = _shift(num_nodes, tails, heads, halves, demands - supplies)
    forward, backward = halves + shift, halves - shift
    common = gcd(*supplies.tolist(), *forward.tolist(), *backward.tolist())
    return Orientation(Fraction(2 * half, common), supplies // common, forward // common, backward // common)


def _shift(num_nodes: int, tails: IntArray, heads: IntArray, halves: IntArray, surplus: IntArray) -> IntArray:
    """Find a flow from tail to head that brings each rank its surplus, through links of half the capacity."""
    ranks, source, sink = np.arange(len(surplus)), num_nodes, num_nodes + 1
    amounts, parts = np.maximum(-surplus, 0), np.maximum(surplus, 0)
    network = flow_network(
        num_nodes + 2,
        np.concatenate([tails, np.full_like(ranks, source), ranks]),
        np.concatenate([heads, ranks, np.full_like(ranks, sink)]),
        np.concatenate([halves, amounts, parts]),
        np.concatenate([halves, np.zeros_like(amounts), np.zeros_like(parts)]),
    )
    flow = solve_network(network, source, sink)
    assert flow.value == parts.sum(), "the demands of all ranks allow this flow"
    return halves - flow.residual[: 2 * len(halves) : 2]


def balanced_demands(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, level: int, target: IntArray
) -> IntArray:
    """Divide `level` among the ranks so that every set of ranks gets at least `level` minus any cut around it.

    Demands may be negative.  They are near `target`: every rank first gets its target, or more if a cut requires it;
    the excess is then removed in equal steps as far as cuts allow.  Shapes: `target` and result int64 (ranks,).
    """
    check_capacities(4 * sum(map(int, capacities)) + 2 * level * (len(target) + 1))
    cuts = node_weighted_cuts(num_nodes, len(target), tails, heads, capacities)
    demands, tight = np.zeros_like(target), np.zeros(len(target), dtype=np.bool_)
    for begin, end in progress.batches(len(target)):
        _raise(cuts, level, begin, end, target, demands, tight)
    # First in equal steps, then as much as cuts allow.
    for last in (False, True):
        excess = int(demands.sum()) - level
        limit = excess if last else excess // max(1, int((~tight).sum())) + 1
        for begin, end in progress.batches(len(target)):
            _remove_excess(cuts, level, limit, begin, end, demands, tight)
    if (excess := int(demands.sum()) - level) > 0:
        raise SolverError(f"the unmet demand at level {level} is {excess}; the level is beyond twice the strength")
    return demands


@kernel_with(_steps_of_cuts)
def _raise(
    cuts: NodeWeightedCuts, level: int, begin: int, end: int, target: IntArray, demands: IntArray, tight: BoolArray
) -> None:
    """Give ranks ``begin .. end - 1`` their target, or more if a cut with earlier ranks requires it."""
    active = np.arange(len(cuts.network.first_arc)) >= cuts.num_ranks
    active[:begin] = True
    for rank in range(begin, end):
        active[rank] = True
        bound = level - min_cut_around(cuts, 1, demands, rank, active)
        demands[rank] = max(target[rank], bound)
        if bound >= target[rank]:
            tight[:rank] |= cuts.scratch[0, :rank] < 0
            tight[rank] = True


@kernel_with(lambda cuts, level, _, begin, end, *__: _steps_of_cuts(cuts, level, begin, end))
def _remove_excess(
    cuts: NodeWeightedCuts, level: int, limit: int, begin: int, end: int, demands: IntArray, tight: BoolArray
) -> None:
    """Remove excess from ranks ``begin .. end - 1``, up to `limit` each, as far as cuts allow."""
    active = np.ones(len(cuts.network.first_arc), dtype=np.bool_)
    excess: int = demands.sum() - level
    for rank in range(begin, end):
        if tight[rank] or excess == 0:
            continue
        spare = demands[rank] + min_cut_around(cuts, 1, demands, rank, active) - level
        if spare <= min(limit, excess):
            tight |= cuts.scratch[0, : cuts.num_ranks] < 0
        demands[rank] -= min(spare, limit, excess)
        excess -= min(spare, limit, excess)
