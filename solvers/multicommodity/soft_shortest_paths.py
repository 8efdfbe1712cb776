"""Flows from many sources to all nodes, over links that lead away from the source, most of it on the shortest ways.

Under given lengths of the links let D be the distances from a source.  Whatever a node takes out or passes on may come
to it over any links (u, v) with D(u) < D(v): that is a flow, as nothing can go round in a circle.  Here the parts of
these links fall with their slack D(u) + length - D(v).  A soft split like this one changes little when lengths do,
where a tree of shortest paths may change altogether.

Flows are whole numbers, so that they can be added up exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from ...support.arrays import FloatArray, IntArray

__all__ = ["FAR", "Adjacent", "adjacent", "distance_sums", "soft_loads", "start_orders"]

OrderArray = npt.NDArray[np.int32]

FAR = 2**62
"""Distance of what cannot be reached."""


class Adjacent(NamedTuple):
    """Links sorted by tail and once more by head, to walk along them in both directions.

    `out_starts`, `in_starts` (int64 (nodes + 1,)): Where the links out of, and into, each node begin.
    `out_links`, `in_links` (int64 (links,)): Numbers of the links, by tail and by head.
    `out_heads`, `in_tails` (int64 (links,)): Their other ends.
    """

    out_starts: IntArray
    out_links: IntArray
    out_heads: IntArray
    in_starts: IntArray
    in_links: IntArray
    in_tails: IntArray


def adjacent(num_nodes: int, tails: IntArray, heads: IntArray) -> Adjacent:
    """Sort links by both ends.

    Shapes: `tails`, `heads` int64 (links,).
    """
    sides = []
    for ends, others in ((tails, heads), (heads, tails)):
        links = np.argsort(ends, kind="stable")
        sides += [np.searchsorted(ends[links], np.arange(num_nodes + 1)), links, others[links]]
    return Adjacent(*sides)


def start_orders(sources: IntArray, num_nodes: int) -> OrderArray:
    """Return what the kernels keep from call to call: for each source all nodes, later by distance, itself first."""
    orders = np.tile(np.arange(num_nodes, dtype=np.int32), (len(sources), 1))
    rows = np.arange(len(sources))
    orders[rows, sources], orders[rows, 0] = 0, sources
    return orders


@numba.njit(cache=True, nogil=True)
def _walk(
    source: int, links: Adjacent, out_lengths: IntArray, order: OrderArray, places: IntArray, distances: IntArray
) -> None:
    """Set the distances from a source, and sort the nodes by them.

    Lengths change little from call to call, so the nodes are nearly in order: (1) go through them, along all links out
    of each; again from the first node that came nearer after it was passed; (2) sort by insertion.
    """
    size = len(order)
    for place in range(size):
        places[order[place]] = place
        distances[order[place]] = FAR
    distances[source] = 0
    first = 0
    while first < size:
        again = size
        for place in range(first, size):
            node = order[place]
            here = distances[node]
            if here == FAR:
                continue
            for number in range(links.out_starts[node], links.out_starts[node + 1]):
                head = links.out_heads[number]
                if here + out_lengths[number] < distances[head]:
                    distances[head] = here + out_lengths[number]
                    if places[head] < place:
                        again = min(again, places[head])
        first = again
    for place in range(1, size):
        node = order[place]
        here = distances[node]
        before = place - 1
        while before >= 0 and distances[order[before]] > here:
            order[before + 1] = order[before]
            before -= 1
        order[before + 1] = node


@numba.njit(cache=True, nogil=True)
def _split(
    links: Adjacent,
    widths: FloatArray,
    in_lengths: IntArray,
    sharpness: float,
    order: OrderArray,
    distances: IntArray,
    needed: IntArray,
    weights: FloatArray,
    count: int,
    flow: IntArray,
) -> None:
    """Bring every node what `needed` tells, from the far end back; add it to `flow`, which is by head, `count` times.

    The part of a link falls with its slack s as capacity (1 - sharpness s)^8, which is close to an exponential and
    quicker.  A shortest link takes what rounding leaves, so that nothing is lost.  `needed` is used up.
    """
    for place in range(len(order) - 1, 0, -1):
        node = order[place]
        left = needed[node]
        if left == 0:
            continue
        total, shortest = 0.0, -1
        start, end = links.in_starts[node], links.in_starts[node + 1]
        here = distances[node]
        for number in range(start, end):
            nearer = distances[links.in_tails[number]]
            slack = nearer + in_lengths[number] - here
            shortest = number if slack == 0 else shortest
            # Without branches, which nobody could foretell.
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
            needed[links.in_tails[number]] += part
        flow[shortest] += count * left
        needed[links.in_tails[shortest]] += left


@numba.njit(cache=True, nogil=True)
def soft_loads(
    sources: IntArray,
    counts: IntArray,
    links: Adjacent,
    capacities: IntArray,
    lengths: IntArray,
    sharpness: float,
    orders: OrderArray,
    needs: IntArray,
) -> IntArray:
    """Add up the flows from some sources, each as often as its count.

    Shapes: `sources`, `counts` int64 (sources,); `capacities`, `lengths` int64 (links,); `orders` int32 (sources,
    nodes); `needs` int64 (sources, ranks); returns int64 (links,).
    """
    size = orders.shape[1]
    places, distances = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    needed, weights = np.empty(size, dtype=np.int64), np.empty(len(lengths))
    out_lengths, in_lengths = lengths[links.out_links], lengths[links.in_links]
    widths = capacities[links.in_links].astype(np.float64)
    flow, loads = np.zeros(len(lengths), dtype=np.int64), np.empty(len(lengths), dtype=np.int64)
    for row in range(len(sources)):
        needed[:] = 0
        needed[: needs.shape[1]] = needs[row]
        order = orders[row]
        _walk(sources[row], links, out_lengths, order, places, distances)
        _split(links, widths, in_lengths, sharpness, order, distances, needed, weights, counts[row], flow)
    loads[links.in_links] = flow
    return loads


@numba.njit(cache=True, nogil=True)
def distance_sums(
    sources: IntArray, links: Adjacent, lengths: IntArray, orders: OrderArray, demands: IntArray
) -> IntArray:
    """Add up, for each source, the distances of all ranks times what they ask for; -1 if one is out of reach.

    Shapes: `demands` int64 (sources, ranks); returns int64 (sources,).
    """
    size = orders.shape[1]
    places, distances = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    out_lengths = lengths[links.out_links]
    sums = np.zeros(len(sources), dtype=np.int64)
    for row in range(len(sources)):
        _walk(sources[row], links, out_lengths, orders[row], places, distances)
        for rank in range(demands.shape[1]):
            if demands[row, rank] > 0:
                if distances[rank] == FAR:
                    sums[row] = -1
                    break
                sums[row] += demands[row, rank] * distances[rank]
    return sums
