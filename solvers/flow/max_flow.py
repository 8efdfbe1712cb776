"""Exact integer maximum flow on arrays.

One residual network serves every algorithm of this room: arcs come in pairs ``a`` and ``a ^ 1`` that are each other's
reverse, ``capacities[a]`` is what arc ``a`` may carry, and pushing flow moves residual capacity between the two arcs
of a pair.  Two opposite links of a topology share one pair, which halves the arcs to scan and changes no cut.  The arcs
of a node form a linked list, so that edge splitting can append arcs while it runs.

Source: E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation", 1970.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from ...errors import CapacityOverflowError, SolverError
from ...support.arrays import BoolArray, IntArray

__all__ = ["FlowNetwork", "MaxFlow", "check_capacities", "flow_network", "max_flow", "paired_network", "solve_network"]


CAPACITY_LIMIT = 2**62
"""Sums of capacities stay below this, so that no sum of two of them leaves int64."""


class FlowNetwork(NamedTuple):
    """A capacitated network; no function of this module changes it.

    `first` (int64 (nodes,)): First arc out of each node, -1 for none.
    `following` (int64 (arcs,)): Next arc out of the same node, -1 at the end.
    `heads` (int64 (arcs,)): Node that each arc enters; the tail of ``a`` is ``heads[a ^ 1]``.
    `capacities` (int64 (arcs,)): Flow that each arc may carry.
    """

    first: IntArray
    following: IntArray
    heads: IntArray
    capacities: IntArray


class MaxFlow(NamedTuple):
    """A maximum flow, or one that reached the limit asked for.

    `value`: Flow pushed from source to sink; a warm start's earlier flow is not in it.
    `residual` (int64 (arcs,)): Residual capacities; hand them back to continue from here.
    `source_side` (bool (nodes,)): The nodes that cannot reach the sink in the residual network: a minimum cut when the
        flow is maximum.
    """

    value: int
    residual: IntArray
    source_side: BoolArray


def check_capacities(*totals: int) -> None:
    """Refuse sums of capacities that the int64 kernels could overflow on."""
    for total in totals:
        if abs(int(total)) >= CAPACITY_LIMIT:
            raise CapacityOverflowError(
                f"scaled capacities add up to {total}, beyond the int64 kernels' {CAPACITY_LIMIT}; "
                "round the bandwidths to fewer digits or use fewer trees per root"
            )


def flow_network(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    reverse: IntArray | None = None,
) -> FlowNetwork:
    """Build a network in which edge ``i`` becomes the arcs ``2 i`` and ``2 i + 1``.

    Shapes: `tails`, `heads`, `capacities` int64 (edges,).
    """
    backward = np.zeros_like(capacities) if reverse is None else reverse
    check_capacities(sum(map(int, capacities)) + sum(map(int, backward)))
    arc_heads = np.empty(2 * len(tails), dtype=np.int64)
    arc_heads[0::2], arc_heads[1::2] = heads, tails
    arc_capacities = np.empty(2 * len(tails), dtype=np.int64)
    arc_capacities[0::2], arc_capacities[1::2] = capacities, backward
    first, following = _linked_arcs(num_nodes, arc_heads)
    return FlowNetwork(first, following, arc_heads, arc_capacities)


def paired_network(num_nodes: int, tails: IntArray, heads: IntArray, capacities: IntArray) -> FlowNetwork:
    """Build a network in which two opposite edges share one pair of arcs; edges must not be parallel.

    Parameters, errors and result are those of `flow_network`, without the correspondence of edges to arcs.
    """
    low, high = np.minimum(tails, heads), np.maximum(tails, heads)
    keys, pair = np.unique(low * num_nodes + high, return_inverse=True)
    both = np.zeros((len(keys), 2), dtype=np.int64)
    np.add.at(both, (pair, (tails != low).astype(np.int64)), capacities)
    return flow_network(num_nodes, keys // num_nodes, keys % num_nodes, both[:, 0].copy(), both[:, 1].copy())


def max_flow(
    num_nodes: int,
    tails: IntArray,
    heads: IntArray,
    capacities: IntArray,
    source: int,
    sink: int,
) -> MaxFlow:
    """Compute a maximum flow and a minimum cut.

    Shapes: `tails`, `heads`, `capacities` int64 (edges,).

    >>> import numpy as np
    >>> tails, heads = np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3])
    >>> flow = max_flow(4, tails, heads, np.array([3, 2, 2, 4]), 0, 3)
    >>> flow.value, flow.source_side.tolist()
    (4, [True, True, False, False])
    """
    return solve_network(flow_network(num_nodes, tails, heads, capacities), source, sink)


def solve_network(
    network: FlowNetwork,
    source: int,
    sink: int,
    *,
    limit: int | None = None,
    residual: IntArray | None = None,
) -> MaxFlow:
    """Push flow from source to sink until it is maximum or reaches `limit`."""
    if source == sink:
        raise SolverError(f"maximum flow needs two different nodes, not {source} twice")
    remaining = (network.capacities if residual is None else residual).copy()
    scratch = _scratch(len(network.first))
    value = augment(
        network.first,
        network.following,
        network.heads,
        remaining,
        source,
        sink,
        CAPACITY_LIMIT if limit is None else limit,
        *scratch,
    )
    levels = scratch[0]
    mark_reaching(network.first, network.following, network.heads, remaining, sink, -1, levels, scratch[2])
    return MaxFlow(int(value), remaining, levels < 0)


def _scratch(num_nodes: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    return tuple(np.empty(num_nodes, dtype=np.int64) for _ in range(4))  # type: ignore[return-value]


@numba.njit(cache=True, nogil=True)
def _linked_arcs(num_nodes: int, heads: IntArray) -> tuple[IntArray, IntArray]:
    first = np.full(num_nodes, -1, dtype=np.int64)
    following = np.full(len(heads), -1, dtype=np.int64)
    for arc in range(len(heads) - 1, -1, -1):
        tail = heads[arc ^ 1]
        following[arc] = first[tail]
        first[tail] = arc
    return first, following


@numba.njit(cache=True, nogil=True)
def mark_reaching(
    first: IntArray,
    following: IntArray,
    heads: IntArray,
    residual: IntArray,
    sink: int,
    stop: int,
    levels: IntArray,
    queue: IntArray,
) -> None:
    """Set `levels` to the distance to `sink` in the residual network, -1 for unreached; end early at node `stop`."""
    levels[:] = -1
    levels[sink] = 0
    queue[0] = sink
    done, found = 0, 1
    while done < found < len(first) and (stop < 0 or levels[stop] < 0):
        node = queue[done]
        done += 1
        arc = first[node]
        while arc >= 0:
            other = heads[arc]
            if levels[other] < 0 and residual[arc ^ 1] > 0:
                levels[other] = levels[node] + 1
                queue[found] = other
                found += 1
            arc = following[arc]


@numba.njit(cache=True, nogil=True)
def augment(
    first: IntArray,
    following: IntArray,
    heads: IntArray,
    residual: IntArray,
    source: int,
    sink: int,
    limit: int,
    levels: IntArray,
    cursor: IntArray,
    queue: IntArray,
    path: IntArray,
) -> int:
    """Push up to `limit` units in `residual` by Dinic's algorithm and return what was pushed.

    Phases: (1) distances to the sink, backwards, stopping at the source; (2) depth-first blocking flow along falling
    distances, keeping the part of the path before its first saturated arc.  If less than `limit` was pushed, `levels`
    holds the last failed search: exactly the nodes that reach the sink have ``levels >= 0``.
    """
    total = 0
    while total < limit:
        mark_reaching(first, following, heads, residual, sink, source, levels, queue)
        if levels[source] < 0:
            break
        cursor[:] = first
        node, depth = source, 0
        while True:
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
            arc = cursor[node]
            while arc >= 0 and (residual[arc] == 0 or levels[heads[arc]] != levels[node] - 1):
                arc = following[arc]
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
                cursor[node] = following[cursor[node]]
    return total
