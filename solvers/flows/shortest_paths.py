"""Link loads of an all-to-all over shortest paths, equal or weighted softly, and the throughput bounds that follow.

Shortest paths are split equally among the links that lead to a node from the previous distance: a flow of linear
program (3) of the direct-connect paper, while no flow uses less capacity than they do.
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import BoundError, CapacityOverflowError
from ...support.arrays import FloatArray, IntArray
from ...support.kernels import kernel, kernel_with

LOAD_LIMIT = 2**62
FACTORS = (5, 7, 3, 3, 2, 2, 2)  # the unit of flow is a product of powers of these, so that most shares are integral
OrderArray = npt.NDArray[np.int32]
UNREACHABLE = 2**62  # distance of an unreachable node


def all_to_all_bounds(
    num_nodes: int, tails: IntArray, heads: IntArray, multiplicities: IntArray
) -> tuple[Fraction, Fraction]:
    """Bound the rate at which all pairs exchange data at once; `multiplicities` is int64 (links,)."""
    unit = _unit(num_nodes)
    out_starts = np.searchsorted(tails, np.arange(num_nodes + 1))
    by_head = np.argsort(heads, kind="stable")
    in_starts = np.searchsorted(heads[by_head], np.arange(num_nodes + 1))
    load, hops = _loads(unit, out_starts, heads, in_starts, tails[by_head], multiplicities[by_head])
    if load < 0:
        raise BoundError("some node cannot reach another; add links until every node reaches every other")
    return Fraction(unit, load), Fraction(int(multiplicities.sum()), hops)


def _unit(num_nodes: int) -> int:
    """Return the largest product of repeated factors with which no sum overflows 64 bits."""
    limit = LOAD_LIMIT // num_nodes**2
    if limit < 2**20:
        raise CapacityOverflowError(f"all-to-all among {num_nodes} nodes would overflow int64; expected fewer nodes")
    unit = 1
    while True:
        for factor in FACTORS:
            if unit * factor * 2 > limit:
                return unit
            unit *= factor


@kernel_with(lambda _, starts, heads, *__: 3 * len(starts) * len(heads))
def _loads(
    unit: int, out_starts: IntArray, heads: IntArray, in_starts: IntArray, tails: IntArray, multiplicities: IntArray
) -> tuple[int, int]:
    """Return the largest load of a link, rounded up, and the sum of all distances; -1 if a node is unreachable."""
    size = len(out_starts) - 1
    loads = np.zeros(len(tails), dtype=np.int64)
    distances = np.empty(size, dtype=np.int64)
    demands = np.empty(size, dtype=np.int64)
    order = np.empty(size, dtype=np.int64)
    hops = 0
    for source in range(size):
        distances[:] = -1
        demands[:] = unit
        distances[source] = 0
        order[0] = source
        reached = 1
        for place in range(size):
            if place == reached:
                return -1, 0
            node = order[place]
            hops += distances[node]
            for link in range(out_starts[node], out_starts[node + 1]):
                if distances[heads[link]] < 0:
                    distances[heads[link]] = distances[node] + 1
                    order[reached] = heads[link]
                    reached += 1
        # Farthest first: a node receives its own demand and that of the nodes behind it.
        for place in range(size - 1, 0, -1):
            node = order[place]
            total = 0
            for link in range(in_starts[node], in_starts[node + 1]):
                if distances[tails[link]] == distances[node] - 1:
                    total += multiplicities[link]
            part = -(-demands[node] // total)
            for link in range(in_starts[node], in_starts[node + 1]):
                if distances[tails[link]] == distances[node] - 1:
                    loads[link] += part
                    demands[tails[link]] += part * multiplicities[link]
    return loads.max(), hops


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
