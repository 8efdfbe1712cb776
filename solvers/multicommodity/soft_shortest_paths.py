"""Logit-style flow assignment: flows from many sources to all nodes, split softly over links away from the source.

Under given link lengths let D be the distances from a source.  Flow uses any links (u, v) with D(u) < D(v), which rules
out cycles (the efficient links of R. B. Dial, "A probabilistic multipath traffic assignment model which obviates path
enumeration", 1971).  The share of a link falls with its slack D(u) + length - D(v).  A soft split changes little when
lengths change little, where a tree of shortest paths may change completely.

Flows are integers, so that sums are exact.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...support.arrays import FloatArray, IntArray
from ...support.kernels import kernel, kernel_with

OrderArray = npt.NDArray[np.int32]

UNREACHABLE = 2**62  # distance of an unreachable node


class Adjacency(NamedTuple):
    """Links in compressed sparse rows, by tail and by head."""

    out_starts: IntArray  # int64 (nodes + 1,): first link out of each node
    out_links: IntArray  # int64 (links,): link numbers, by tail
    out_heads: IntArray  # int64 (links,): their heads
    in_starts: IntArray  # int64 (nodes + 1,): first link into each node
    in_links: IntArray  # int64 (links,): link numbers, by head
    in_tails: IntArray  # int64 (links,): their tails


def adjacency(num_nodes: int, tails: IntArray, heads: IntArray) -> Adjacency:
    """Sort links by both ends."""
    sides = []
    for ends, ends_there in ((tails, heads), (heads, tails)):
        links = np.argsort(ends, kind="stable")
        sides += [np.searchsorted(ends[links], np.arange(num_nodes + 1)), links, ends_there[links]]
    return Adjacency(*sides)


def initial_orders(sources: IntArray, num_nodes: int) -> OrderArray:
    """Return initial node orders, int32 (sources, nodes), source first; kernels keep them sorted by distance."""
    orders = np.tile(np.arange(num_nodes, dtype=np.int32), (len(sources), 1))
    rows = np.arange(len(sources))
    orders[rows, sources], orders[rows, 0] = 0, sources
    return orders


@kernel
def _shortest_distances(
    source: int, links: Adjacency, out_lengths: IntArray, order: OrderArray, places: IntArray, distances: IntArray
) -> None:
    """Set the distances from a source, and sort the nodes by distance, which changes little between calls."""
    size = len(order)
    for place in range(size):
        places[order[place]] = place
        distances[order[place]] = UNREACHABLE
    distances[source] = 0
    # Relax links in the order of the last call, from the first node again that is out of order.
    first = 0
    while first < size:
        again = size
        for place in range(first, size):
            node = order[place]
            here = distances[node]
            if here == UNREACHABLE:
                continue
            for number in range(links.out_starts[node], links.out_starts[node + 1]):
                head = links.out_heads[number]
                if here + out_lengths[number] < distances[head]:
                    distances[head] = here + out_lengths[number]
                    if places[head] < place:
                        again = min(again, places[head])
        first = again
    # Insertion sort, which is linear where little changed.
    for place in range(1, size):
        node = order[place]
        here = distances[node]
        before = place - 1
        while before >= 0 and distances[order[before]] > here:
            order[before + 1] = order[before]
            before -= 1
        order[before + 1] = node


@kernel
def _split(
    links: Adjacency,
    widths: FloatArray,
    in_lengths: IntArray,
    sharpness: float,
    order: OrderArray,
    distances: IntArray,
    demand: IntArray,
    weights: FloatArray,
    count: int,
    flow: IntArray,
) -> None:
    """Meet the `demand` of every node, farthest first; add the flow, by head, `count` times to `flow`.

    Shares of links are proportional to capacity * (1 - sharpness * slack)^8, which is faster than an exponential.
    """
    for place in range(len(order) - 1, 0, -1):
        node = order[place]
        left = demand[node]
        if left == 0:
            continue
        total, shortest = 0.0, -1
        start, end = links.in_starts[node], links.in_starts[node + 1]
        here = distances[node]
        for number in range(start, end):
            nearer = distances[links.in_tails[number]]
            slack = nearer + in_lengths[number] - here
            shortest = number if slack == 0 else shortest
            # Branch-free, since the branches would be unpredictable.
            share = max(1.0 - sharpness * slack, 0.0)
            share *= share
            share *= share
            share = share * share * widths[number] if nearer < here else 0.0
            weights[number] = share
            total += share
        scale = left / total
        for number in range(start, end):
            part = min(left, np.int64(scale * weights[number]))
            left -= part
            flow[number] += count * part
            demand[links.in_tails[number]] += part
        flow[shortest] += count * left
        demand[links.in_tails[shortest]] += left


@kernel_with(lambda sources, _, links, *__: 5 * len(sources) * len(links.in_links))
def soft_loads(
    sources: IntArray,
    counts: IntArray,
    links: Adjacency,
    capacities: IntArray,
    lengths: IntArray,
    sharpness: float,
    orders: OrderArray,
    units: IntArray,
) -> IntArray:
    """Sum the loads of the flows from some sources, each multiplied by its count.

    Shapes: `sources`, `counts` int64 (sources,); `capacities`, `lengths` int64 (links,); `orders` int32 (sources,
    nodes); `units` int64 (sources, ranks); returns int64 (links,).
    """
    size = orders.shape[1]
    places, distances = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    demand, weights = np.empty(size, dtype=np.int64), np.empty(len(lengths))
    out_lengths, in_lengths = lengths[links.out_links], lengths[links.in_links]
    widths = capacities[links.in_links].astype(np.float64)
    flow, loads = np.zeros(len(lengths), dtype=np.int64), np.empty(len(lengths), dtype=np.int64)
    for row in range(len(sources)):
        demand[:] = 0
        demand[: units.shape[1]] = units[row]
        order = orders[row]
        _shortest_distances(sources[row], links, out_lengths, order, places, distances)
        _split(links, widths, in_lengths, sharpness, order, distances, demand, weights, counts[row], flow)
    loads[links.in_links] = flow
    return loads


@kernel_with(lambda sources, links, *_: 2 * len(sources) * len(links.in_links))
def distance_sums(
    sources: IntArray, links: Adjacency, lengths: IntArray, orders: OrderArray, demands: IntArray
) -> IntArray:
    """Sum distance times `demands`, int64 (sources, ranks), per source; -1 if a rank is unreachable."""
    size = orders.shape[1]
    places, distances = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    out_lengths = lengths[links.out_links]
    sums = np.zeros(len(sources), dtype=np.int64)
    for row in range(len(sources)):
        _shortest_distances(sources[row], links, out_lengths, orders[row], places, distances)
        for rank in range(demands.shape[1]):
            if demands[row, rank] > 0:
                if distances[rank] == UNREACHABLE:
                    sums[row] = -1
                    break
                sums[row] += demands[row, rank] * distances[rank]
    return sums
