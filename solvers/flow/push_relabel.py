"""How much of the supplies of many nodes reaches a sink, and the cut that holds back the rest.

Push-relabel, which suits supplies at many nodes: what comes from far is joined on its way, so that a ring takes one
push per node, where augmenting paths would be as many and as long as the ring.  The node with the largest label goes
first, and labels are set to exact distances again and again.  Only the first half of the method is needed: supplies
that cannot reach the sink stay where they are stuck.  Sending them back would change nothing on the sink's side, since
no node on their way reaches the sink either; so the cut is that of a maximum flow.

Source: A. V. Goldberg and R. E. Tarjan, "A new approach to the maximum-flow problem", Journal of the ACM 35(4), 1988;
B. V. Cherkassky and A. V. Goldberg, "On implementing the push-relabel method for the maximum flow problem",
Algorithmica 19(4), 1997.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from ...support.arrays import IntArray
from .max_flow import FlowNetwork, mark_reaching

__all__ = ["Workspace", "lacking_at", "workspace"]


LABEL_INTERVAL = 4
"""Labels are set anew once relabelling has looked at one arc in so many."""


class Workspace(NamedTuple):
    """Arrays that `lacking_at` writes to, each of shape (nodes,)."""

    labels: IntArray  # lower bounds of the distance to the sink; the number of nodes if there is no way
    queue: IntArray
    excess: IntArray  # what waits at each node
    cursor: IntArray  # the arc of each node that is tried next
    waiting: IntArray  # by label: a node with excess, -1 for none
    next_waiting: IntArray  # by node: the next one of the same label


@numba.njit(cache=True, nogil=True)
def workspace(num_nodes: int) -> Workspace:
    """Room for `lacking_at`, to be used for as many sinks as one likes."""
    rows = np.empty((6, num_nodes), dtype=np.int64)
    return Workspace(rows[0], rows[1], rows[2], rows[3], rows[4], rows[5])


@numba.njit(cache=True, nogil=True)
def lacking_at(network: FlowNetwork, residual: IntArray, supplies: IntArray, sink: int, space: Workspace) -> int:
    """Push the supplies of the first nodes towards a sink and return how much does not arrive.

    Changes `residual`, at first the capacities.  If anything lacks, ``space.labels`` is not negative at exactly the
    nodes that can still reach the sink: the smallest sink side of a minimum cut.

    Steps: (1) take a node with excess and the largest label; (2) push to nodes one label below, from its cursor on;
    (3) if some excess is left, raise its label just above the lowest node that it can push to.
    """
    # Local names: numba counts references whenever a field of a tuple is looked up.
    first, following, heads, _ = network
    labels, _, excess, cursor, waiting, next_waiting = space
    excess[:] = 0
    excess[: len(supplies)] = supplies
    total = supplies.sum()
    _push_from_neighbours(network, residual, sink, excess)
    highest = 0 if excess[sink] == total else _label(network, residual, sink, space)
    scanned = 0
    while highest > 0:
        node = waiting[highest]
        if node < 0:
            highest -= 1
            continue
        waiting[highest] = next_waiting[node]
        left, below, arc = excess[node], highest - 1, cursor[node]
        while arc >= 0:
            other = heads[arc]
            if residual[arc] > 0 and labels[other] == below:
                amount = min(left, residual[arc])
                residual[arc] -= amount
                residual[arc ^ 1] += amount
                if excess[other] == 0 and other != sink:
                    next_waiting[other] = waiting[below]
                    waiting[below] = other
                excess[other] += amount
                left -= amount
                if left == 0:
                    break
            arc = following[arc]
        excess[node], cursor[node] = left, arc
        if left > 0:
            lowest, degree = _lowest_ahead(first[node], following, heads, residual, labels)
            labels[node], cursor[node] = lowest + 1, first[node]
            scanned += degree
            if lowest + 1 < len(first):
                highest = labels[node]
                next_waiting[node] = waiting[highest]
                waiting[highest] = node
        if scanned > len(heads) // LABEL_INTERVAL:
            highest = _label(network, residual, sink, space)
            scanned = 0
    if excess[sink] < total:
        mark_reaching(first, following, heads, residual, sink, -1, labels, space.queue)
    lacking: int = total - excess[sink]
    return lacking


@numba.njit(cache=True, nogil=True)
def _push_from_neighbours(network: FlowNetwork, residual: IntArray, sink: int, excess: IntArray) -> None:
    """Let the sink's neighbours send it their own supplies, which in a dense network is nearly all there is to do."""
    arc = network.first[sink]
    while arc >= 0:
        other = network.heads[arc]
        amount = min(excess[other], residual[arc ^ 1])
        residual[arc ^ 1] -= amount
        residual[arc] += amount
        excess[other] -= amount
        excess[sink] += amount
        arc = network.following[arc]


@numba.njit(cache=True, nogil=True)
def _lowest_ahead(
    arc: int, following: IntArray, heads: IntArray, residual: IntArray, labels: IntArray
) -> tuple[int, int]:
    """Lowest label to which an arc, or one that follows it, has room; and how many arcs these are."""
    lowest, degree = len(labels) - 1, 0
    while arc >= 0:
        if residual[arc] > 0:
            lowest = min(lowest, labels[heads[arc]])
        degree += 1
        arc = following[arc]
    return lowest, degree


@numba.njit(cache=True, nogil=True)
def _label(network: FlowNetwork, residual: IntArray, sink: int, space: Workspace) -> int:
    """Set labels to distances and list the nodes with excess; return the largest label among these."""
    mark_reaching(network.first, network.following, network.heads, residual, sink, -1, space.labels, space.queue)
    space.cursor[:] = network.first
    space.waiting[:] = -1
    highest = 0
    for node in range(len(space.labels)):
        label = space.labels[node]
        if label < 0:
            space.labels[node] = len(space.labels)
        elif label > 0 and space.excess[node] > 0:
            space.next_waiting[node] = space.waiting[label]
            space.waiting[label] = node
            highest = max(highest, label)
    return highest
