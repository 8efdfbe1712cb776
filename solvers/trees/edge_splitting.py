"""Exact edge splitting: replaces the links of one switch by links between its neighbors.

ForestColl section 5.3, Appendix E.2 (Algorithm 3, Theorem 6).  One sweep over the sinks finds the largest amount for a
pair (u, w), (w, t), instead of the 2 N flows of equation (1): a deficit of d lowers it by d.  Limiting cuts stay tight
and are pooled to reject later pairs.  Proof: docs/explanation/algorithms.md.
"""

import numpy as np

from ...support import progress
from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel, kernel_with
from ..flow.max_flow import FlowNetwork, flow_network, paired_network
from ..flow.push_relabel import sweep_sinks, unmet_demand, workspace


def split_pairs(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    supplies: IntArray,
    *,
    num_sinks: int,
    switch: int,
) -> tuple[IntArray, int]:
    """Isolate one switch exactly; return int64 (pairs, 3) rows (into, out, units) and its remaining capacity."""
    sweep = sweep_sinks(num_nodes, tails, heads, capacities, supplies, num_sinks)
    tight = np.unique(sweep.sink_sides[sweep.deficit == 0], axis=0)
    network = _with_pair_arcs(paired_network(num_nodes, tails, heads, capacities), switch)
    pairs = _isolate(network, switch, num_sinks, supplies, tight)
    arcs = np.flatnonzero(network.heads == switch)
    return pairs, int(network.capacities[arcs].sum() + network.capacities[arcs ^ 1].sum())


def _with_pair_arcs(network: FlowNetwork, switch: int) -> FlowNetwork:
    """Add a pair of arcs between every two neighbors of `switch`, and drop arcs without capacity."""
    tails, heads = network.heads[1::2], network.heads[0::2]
    forward, backward = network.capacities[0::2], network.capacities[1::2]
    alive = (forward > 0) | (backward > 0)
    tails, heads, forward, backward = tails[alive], heads[alive], forward[alive], backward[alive]
    around = np.unique(np.concatenate([tails[heads == switch], heads[tails == switch]]))
    low, high = np.minimum(tails, heads), np.maximum(tails, heads)
    nodes = len(network.first_arc)
    rows, columns = np.triu_indices(len(around), 1)
    keys = around[rows] * nodes + around[columns]
    missing = keys[~np.isin(keys, low * nodes + high)]
    nothing = np.zeros(len(missing), dtype=np.int64)
    ends = np.concatenate([tails, missing // nodes]), np.concatenate([heads, missing % nodes])
    return flow_network(nodes, *ends, np.concatenate([forward, nothing]), np.concatenate([backward, nothing]))


def _isolate(network: FlowNetwork, switch: int, num_sinks: int, supplies: IntArray, tight: BoolArray) -> IntArray:
    """Split off all pairs of links at `switch`, changing the capacities; return (into, out, units) rows."""
    arcs = _arcs_from(network, switch)
    pairs = _pairs(len(arcs))
    order = np.arange(num_sinks)
    pool = np.zeros((len(tight) + num_sinks, len(network.first_arc)), dtype=np.bool_)
    pool[: len(tight)] = tight
    found, splits = len(tight), []
    for begin, end in progress.batches(len(pairs)):
        rows, pool, found = _split_some(network, switch, supplies, arcs, pairs[begin:end], order, pool, found)
        splits.append(rows)
    return np.concatenate(splits)


@kernel_with(lambda network, _, __, ___, pairs, order, *____: len(pairs) * len(order) * len(network.heads))
def _split_some(
    network: FlowNetwork,
    switch: int,
    supplies: IntArray,
    arcs: IntArray,
    pairs: IntArray,
    order: IntArray,
    pool: BoolArray,
    found: int,
) -> tuple[IntArray, BoolArray, int]:
    """Split off some pairs; return (into, out, units) rows, the pool of tight cuts, and how many there are in it."""
    splits = np.empty((len(pairs), 3), dtype=np.int64)
    done = 0
    for pair in range(len(pairs)):
        from_arc, to_arc = arcs[pairs[pair, 0]], arcs[pairs[pair, 1]]
        into, out = network.heads[from_arc], network.heads[to_arc]
        if min(network.capacities[from_arc ^ 1], network.capacities[to_arc]) == 0:
            continue
        if _forbidden(pool, found, into, switch, out):
            continue
        if found == len(pool):
            pool = np.concatenate((pool, np.zeros_like(pool)))
        units, limited = _split_pair(network, from_arc, to_arc, supplies, order, pool[found])
        found += limited
        if units > 0:
            splits[done, 0], splits[done, 1], splits[done, 2] = into, out, units
            done += 1
    return splits[:done].copy(), pool, found


@kernel
def _arcs_from(network: FlowNetwork, node: int) -> IntArray:
    degree = 0
    arc = network.first_arc[node]
    while arc >= 0:
        degree += 1
        arc = network.next_arc[arc]
    arcs = np.empty(degree, dtype=np.int64)
    arc = network.first_arc[node]
    for index in range(degree):
        arcs[index] = arc
        arc = network.next_arc[arc]
    return arcs


@kernel
def _pairs(degree: int) -> IntArray:
    """List all ordered pairs of neighbor indices, shape (degree^2, 2), in rotations to spread links over many others.

    Pairs of a neighbor with itself come last, needed only if one neighbor holds more than half of the switch.
    """
    pairs = np.empty((degree * degree, 2), dtype=np.int64)
    for shift in range(1, degree + 1):
        for index in range(degree):
            row = (shift - 1) * degree + index
            pairs[row, 0], pairs[row, 1] = index, (index + shift) % degree
    return pairs


@kernel
def _split_pair(
    network: FlowNetwork, from_arc: int, to_arc: int, supplies: IntArray, order: IntArray, cut: BoolArray
) -> tuple[int, bool]:
    """Split as many units of one pair as every sink allows; return them and whether some sink limited them.

    The cut of the last limiting sink, which is tight, is written into `cut`; that sink moves to the front of `order`.
    """
    space = workspace(len(network.first_arc))
    into, out = network.heads[from_arc], network.heads[to_arc]
    direct = _arc_between(network, into, out) if into != out else -1
    units = min(network.capacities[from_arc ^ 1], network.capacities[to_arc])
    _move(network.capacities, from_arc, to_arc, direct, units)
    limited = False
    for position in range(len(order)):
        sink = order[position]
        deficit = unmet_demand(network, network.capacities.copy(), supplies, sink, space)
        if deficit == 0:
            continue
        _move(network.capacities, from_arc, to_arc, direct, -deficit)
        units -= deficit
        cut[:] = space.labels >= 0
        limited = True
        order[1 : position + 1] = order[:position].copy()
        order[0] = sink
        if units == 0:
            break
    return units, limited


@kernel
def _forbidden(cuts: BoolArray, count: int, into: int, switch: int, out: int) -> bool:
    """Return whether some tight cut has the switch on one side and both neighbors on the other."""
    for cut in range(count):  # noqa: SIM110 - numba compiles no generator
        if cuts[cut, into] == cuts[cut, out] and cuts[cut, into] != cuts[cut, switch]:
            return True
    return False


@kernel
def _arc_between(network: FlowNetwork, tail: int, head: int) -> int:
    arc: int = network.first_arc[tail]
    while network.heads[arc] != head:
        arc = network.next_arc[arc]
    return arc


@kernel
def _move(capacities: IntArray, from_arc: int, to_arc: int, direct: int, units: int) -> None:
    """Split `units` of the pair; a negative number undoes a split."""
    capacities[from_arc ^ 1] -= units
    capacities[to_arc] -= units
    if direct >= 0:
        capacities[direct] += units
