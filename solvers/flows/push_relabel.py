"""Push-relabel maximum preflow from supplies at many nodes into one sink, and its minimum cut.

Highest-label selection with periodic global relabeling, first phase only: excess that cannot reach the sink stays,
which changes no cut.  Sources: Goldberg and Tarjan, Journal of the ACM 35(4), 1988; Cherkassky and Goldberg,
Algorithmica 19(4), 1997; see docs/explanation/algorithms.md.
"""

from typing import NamedTuple

import numpy as np

from ...support import progress
from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel, kernel_with
from .max_flow import FlowNetwork, distances_to_sink, paired_network, steps_of_sinks

RELABEL_INTERVAL = 4  # a global relabeling follows once relabel operations have scanned one in this many arcs


class Workspace(NamedTuple):
    """Scratch arrays of `unmet_demand`, each int64 (nodes,)."""

    labels: IntArray  # lower bounds of the distance to the sink; the number of nodes if it is unreachable
    queue: IntArray
    excess: IntArray
    cursor: IntArray  # current arc of each node
    buckets: IntArray  # by label: first active node, -1 for none
    next_in_bucket: IntArray  # by node: next active node of the same label


@kernel
def workspace(num_nodes: int) -> Workspace:
    """Allocate the scratch arrays of `unmet_demand`; they serve any number of sinks."""
    rows = np.empty((6, num_nodes), dtype=np.int64)
    return Workspace(rows[0], rows[1], rows[2], rows[3], rows[4], rows[5])


@kernel
def unmet_demand(network: FlowNetwork, residual: IntArray, supplies: IntArray, sink: int, space: Workspace) -> int:
    """Push the supplies of the first nodes towards a sink and return the deficit: supplies minus maximum flow.

    `residual`, int64 (arcs,), holds the capacities at first and is changed.  If the deficit is positive,
    ``space.labels`` is non-negative at exactly the nodes that reach the sink: the smallest sink side of a minimum cut.
    """
    # Local names: numba counts references whenever a field of a tuple is looked up.
    first_arc, next_arc, heads, _ = network
    labels, _, excess, cursor, buckets, next_in_bucket = space
    # All supplies start as excess of their nodes.
    excess[:] = 0
    excess[: len(supplies)] = supplies
    total = supplies.sum()
    _push_from_neighbors(network, residual, sink, excess)
    highest = 0 if excess[sink] == total else _global_relabel(network, residual, sink, space)
    scanned = 0
    # Discharge the active node of highest label until none is left that reaches the sink.
    while highest > 0:
        node = buckets[highest]
        if node < 0:
            highest -= 1
            continue
        buckets[highest] = next_in_bucket[node]
        # Push along admissible arcs.
        left, below, arc = excess[node], highest - 1, cursor[node]
        while arc >= 0:
            other = heads[arc]
            if residual[arc] > 0 and labels[other] == below:
                amount = min(left, residual[arc])
                residual[arc] -= amount
                residual[arc ^ 1] += amount
                if excess[other] == 0 and other != sink:
                    next_in_bucket[other] = buckets[below]
                    buckets[below] = other
                excess[other] += amount
                left -= amount
                if left == 0:
                    break
            arc = next_arc[arc]
        excess[node], cursor[node] = left, arc
        # Relabel a node that still has excess.
        if left > 0:
            lowest, degree = _min_residual_label(first_arc[node], next_arc, heads, residual, labels)
            labels[node], cursor[node] = lowest + 1, first_arc[node]
            scanned += degree
            if lowest + 1 < len(first_arc):
                highest = labels[node]
                next_in_bucket[node] = buckets[highest]
                buckets[highest] = node
        if scanned > len(heads) // RELABEL_INTERVAL:
            highest = _global_relabel(network, residual, sink, space)
            scanned = 0
    # The minimum cut: nodes that reach the sink in the residual network.
    if excess[sink] < total:
        distances_to_sink(network, residual, sink, -1, labels, space.queue)
    deficit: int = total - excess[sink]
    return deficit


@kernel
def _push_from_neighbors(network: FlowNetwork, residual: IntArray, sink: int, excess: IntArray) -> None:
    """Push the supplies of the sink's neighbors into it, which is nearly all the work in a dense network."""
    arc = network.first_arc[sink]
    while arc >= 0:
        other = network.heads[arc]
        amount = min(excess[other], residual[arc ^ 1])
        residual[arc ^ 1] -= amount
        residual[arc] += amount
        excess[other] -= amount
        excess[sink] += amount
        arc = network.next_arc[arc]


@kernel
def _min_residual_label(
    arc: int, next_arc: IntArray, heads: IntArray, residual: IntArray, labels: IntArray
) -> tuple[int, int]:
    """Find the lowest label that the residual arcs from `arc` on lead to, and count these arcs."""
    lowest, degree = len(labels) - 1, 0
    while arc >= 0:
        if residual[arc] > 0:
            lowest = min(lowest, labels[heads[arc]])
        degree += 1
        arc = next_arc[arc]
    return lowest, degree


@kernel
def _global_relabel(network: FlowNetwork, residual: IntArray, sink: int, space: Workspace) -> int:
    """Set labels to exact distances and fill the buckets of active nodes; return the highest active label."""
    distances_to_sink(network, residual, sink, -1, space.labels, space.queue)
    space.cursor[:] = network.first_arc
    space.buckets[:] = -1
    highest = 0
    for node in range(len(space.labels)):
        label = space.labels[node]
        if label < 0:
            space.labels[node] = len(space.labels)
        elif label > 0 and space.excess[node] > 0:
            space.next_in_bucket[node] = space.buckets[label]
            space.buckets[label] = node
            highest = max(highest, label)
    return highest


class SinkSweep(NamedTuple):
    """Deficits and minimum cuts of all sinks."""

    deficit: IntArray  # int64 (sinks,): supplies minus maximum flow into each sink
    # bool (sinks, nodes): the smallest sink side of a minimum cut: the nodes that reach the sink in the residual
    # network.  At deficit 0 it is the smallest *tight* set around the sink, the whole network if there is none.
    sink_sides: BoolArray


def sweep_sinks(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, supplies: IntArray, num_sinks: int
) -> SinkSweep:
    """Compute a maximum flow from all supplies into each of the nodes ``0 .. num_sinks - 1``."""
    network = paired_network(num_nodes, tails, heads, capacities)
    sweep = SinkSweep(np.zeros(num_sinks, dtype=np.int64), np.zeros((num_sinks, num_nodes), dtype=np.bool_))
    for begin, end in progress.batches(num_sinks):
        _sweep(network, supplies, begin, end, *sweep)
    return sweep


@kernel_with(steps_of_sinks)
def _sweep(
    network: FlowNetwork, supplies: IntArray, begin: int, end: int, deficit: IntArray, sink_sides: BoolArray
) -> None:
    """Fill in the rows of sinks ``begin .. end - 1``."""
    space = workspace(len(network.first_arc))
    for sink in range(begin, end):
        residual = network.capacities.copy()
        deficit[sink] = unmet_demand(network, residual, supplies, sink, space)
        if deficit[sink] == 0:
            labels, queue = space.labels, space.queue
            distances_to_sink(network, residual, sink, -1, labels, queue)
        sink_sides[sink] = space.labels >= 0
