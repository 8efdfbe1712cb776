"""Integer maximum flow by Dinic's algorithm (1970), and push-relabel preflows from many nodes into one sink.

Arcs come in pairs ``a`` and ``a ^ 1``, each the reverse of the other, which two opposite links share; the arcs out of a
node form a linked list.  Sources: Goldberg and Tarjan, 1988; Cherkassky and Goldberg, 1997; see
docs/explanation/algorithms.md.
"""

from typing import NamedTuple

import numpy as np

from ...errors import CapacityOverflowError, SolverError
from ...support import progress
from ...support.arrays import BoolArray, IntArray
from ...support.kernels import kernel, kernel_with

CAPACITY_LIMIT = 2**62  # sums of capacities stay below this, so that the sum of two of them fits int64


class FlowNetwork(NamedTuple):
    """A capacitated network; no function of this module changes it."""

    first_arc: IntArray  # int64 (nodes,): first arc out of each node, -1 for none
    next_arc: IntArray  # int64 (arcs,): next arc out of the same node, -1 at the end
    heads: IntArray  # int64 (arcs,): node that each arc enters; the tail of ``a`` is ``heads[a ^ 1]``
    capacities: IntArray  # int64 (arcs,): flow that each arc may carry


class MaxFlow(NamedTuple):
    """A maximum flow."""

    value: int  # flow pushed from source to sink
    residual: IntArray  # int64 (arcs,): residual capacities
    # bool (nodes,): nodes that cannot reach the sink in the residual network, a minimum cut
    source_side: BoolArray


def check_capacities(*totals: int) -> None:
    """Raise `CapacityOverflowError` if a sum of capacities could overflow the int64 kernels."""
    for total in totals:
        if abs(int(total)) >= CAPACITY_LIMIT:
            raise CapacityOverflowError(
                f"scaled capacities add up to {total}, beyond the int64 kernels' {CAPACITY_LIMIT}; "
                "round the bandwidths to fewer digits or use fewer trees per root"
            )


def flow_network(
    num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, reverse: IntArray | None = None
) -> FlowNetwork:
    """Build a network in which edge ``i`` becomes the arcs ``2 i`` and ``2 i + 1``."""
    backward = np.zeros_like(capacities) if reverse is None else reverse
    check_capacities(sum(map(int, capacities)) + sum(map(int, backward)))
    arc_heads = np.empty(2 * len(tails), dtype=np.int64)
    arc_heads[0::2], arc_heads[1::2] = heads, tails
    arc_capacities = np.empty(2 * len(tails), dtype=np.int64)
    arc_capacities[0::2], arc_capacities[1::2] = capacities, backward
    first_arc, next_arc = _linked_arcs(num_nodes, arc_heads)
    return FlowNetwork(first_arc, next_arc, arc_heads, arc_capacities)


def paired_network(num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray) -> FlowNetwork:
    """Build a network in which two opposite edges share one pair of arcs; edges must not be parallel."""
    low, high = np.minimum(tails, heads), np.maximum(tails, heads)
    keys, pair = np.unique(low * num_nodes + high, return_inverse=True)
    both = np.zeros((len(keys), 2), dtype=np.int64)
    np.add.at(both, (pair, (tails != low).astype(np.int64)), capacities)
    return flow_network(num_nodes, keys // num_nodes, keys % num_nodes, both[:, 0].copy(), both[:, 1].copy())


def max_flow(num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray, source: int, sink: int) -> MaxFlow:
    """Compute a maximum flow and a minimum cut."""
    return solve_network(flow_network(num_nodes, tails, heads, capacities), source, sink)


def solve_network(network: FlowNetwork, source: int, sink: int) -> MaxFlow:
    """Push a maximum flow from source to sink."""
    if source == sink:
        raise SolverError(f"maximum flow needs two different nodes, not {source} twice")
    residual = network.capacities.copy()
    scratch = np.empty((4, len(network.first_arc)), dtype=np.int64)
    value = augment(network, residual, source, sink, CAPACITY_LIMIT, scratch)
    distances_to_sink(network, residual, sink, -1, scratch[0], scratch[2])
    return MaxFlow(int(value), residual, scratch[0] < 0)


def steps_of_sinks(network: FlowNetwork, _: object, begin: int, end: int, *__: object) -> int:
    """Estimate the steps of a kernel that finds a maximum flow into each of the sinks ``begin .. end - 1``."""
    return 4 * (end - begin) * len(network.heads)


@kernel
def _linked_arcs(num_nodes: int, heads: IntArray) -> tuple[IntArray, IntArray]:
    first_arc = np.full(num_nodes, -1, dtype=np.int64)
    next_arc = np.full(len(heads), -1, dtype=np.int64)
    for arc in range(len(heads) - 1, -1, -1):
        tail = heads[arc ^ 1]
        next_arc[arc] = first_arc[tail]
        first_arc[tail] = arc
    return first_arc, next_arc


@kernel
def distances_to_sink(
    network: FlowNetwork, residual: IntArray, sink: int, stop: int, levels: IntArray, queue: IntArray
) -> None:
    """Set `levels` to the residual distances to `sink` by backward BFS, -1 if unreached; end early at node `stop`."""
    first_arc, next_arc, heads, _ = network
    levels[:] = -1
    levels[sink] = 0
    queue[0] = sink
    done, reached = 0, 1
    while done < reached < len(first_arc) and (stop < 0 or levels[stop] < 0):
        node = queue[done]
        done += 1
        arc = first_arc[node]
        while arc >= 0:
            other = heads[arc]
            if levels[other] < 0 and residual[arc ^ 1] > 0:
                levels[other] = levels[node] + 1
                queue[reached] = other
                reached += 1
            arc = next_arc[arc]


@kernel
def augment(network: FlowNetwork, residual: IntArray, source: int, sink: int, limit: int, scratch: IntArray) -> int:
    """Push up to `limit` units in `residual` by Dinic's algorithm and return the amount pushed.

    If less than `limit` was pushed, exactly the nodes that reach the sink have ``scratch[0] >= 0``.  Shapes: `scratch`
    int64 (4, nodes).
    """
    first_arc, next_arc, heads, _ = network
    levels, cursor, queue, path = scratch[0], scratch[1], scratch[2], scratch[3]
    total = 0
    while total < limit:
        distances_to_sink(network, residual, sink, source, levels, queue)
        if levels[source] < 0:
            break
        # A blocking flow in the network of shortest distances, by depth-first search.
        cursor[:] = first_arc
        node, depth = source, 0
        while True:
            # Augment along the path, and go back to its first saturated arc.
            if node == sink:
                amount = limit - total
                for step in range(depth):
                    amount = min(amount, residual[path[step]])
                saturated = depth
                for step in range(depth - 1, -1, -1):
                    residual[path[step]] -= amount
                    residual[path[step] ^ 1] += amount
                    if residual[path[step]] == 0:
                        saturated = step
                total += amount
                if total == limit:
                    break
                depth = saturated
                node = heads[path[depth] ^ 1]
                continue
            # Advance to the next node that is nearer to the sink.
            arc = cursor[node]
            while arc >= 0 and (residual[arc] == 0 or levels[heads[arc]] != levels[node] - 1):
                arc = next_arc[arc]
            cursor[node] = arc
            if arc >= 0:
                path[depth] = arc
                depth += 1
                node = heads[arc]
            elif depth == 0:
                break
            else:
                # A dead end: no later path of this phase needs this node.
                depth -= 1
                node = heads[path[depth] ^ 1]
                cursor[node] = next_arc[cursor[node]]
    return total


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
