"""Exact T_L and T_B of breadth-first broadcast on generalized Kautz graphs, by enumeration of runs.

Arcs of Π(d, m) run from x to -dx - a modulo m, for a = 1 ... d (direct-connect paper, Definition 16).  T is the largest
t with d^t < m.  Sources at distance T + 1 can use links from in-neighbors that are adjacent on the circle, a *run*; the
load is the largest c(S) / |S| over runs S (Theorem 19).  Proof: docs/explanation/algorithms.md.
"""

from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray
from ...support.kernels import kernel, kernel_with

LARGEST = 2**15  # limit of nodes, for the time of the kernel; its arithmetic fits 64 bits far beyond


class KautzFigures(NamedTuple):
    """What breadth-first broadcast takes on one generalized Kautz graph."""

    steps: int  # T_L in alpha: the diameter
    bandwidth_factor: Fraction  # the least T_B of a breadth-first schedule, in M/B
    distance_sum: int  # hops between all ordered pairs of nodes


@cache
def kautz_figures(degree: int, size: int) -> KautzFigures:
    """Compute the BFB figures of one generalized Kautz graph."""
    _check(degree, size)
    steps, load, top, bottom, distance_sum = _measure(degree, size)
    return KautzFigures(steps, Fraction(degree, size) * (load + Fraction(top, bottom)), distance_sum)


def _check(degree: int, size: int) -> None:
    """Raise an error for graphs that do not exist or are too large."""
    if degree < 2 or not degree < size <= LARGEST:
        raise UnsupportedError(
            f"there are no figures of a generalized Kautz graph of {size} nodes and degree {degree}; "
            f"expected a degree of 2 or more, and from degree + 1 to {LARGEST} nodes"
        )


@kernel_with(lambda degree, size: degree * size * size)
def _measure(degree: int, size: int) -> tuple[int, int, int, int, int]:
    """Backward BFS from one node of each orbit, then the loads of the runs of the last step.

    Returns T_L, the load of all steps but the last, numerator and denominator of that of the last, and the distances.
    """
    depth, reach = depth_and_reach(degree, size)
    into = _in_neighbors(degree, size)
    starts, starts_before = _starts(degree, size, depth)
    period = kautz_period(degree, size)
    loads = np.zeros(depth + 1, dtype=np.int64)
    top, bottom, distance_sum = 0, 1, 0
    visits = np.full(size, -1, dtype=np.int64)
    queue = np.empty(size, dtype=np.int64)
    links = np.empty(size, dtype=np.int64)
    piece_of = np.empty(size, dtype=np.int64)
    for node in range((period + 1) // 2):
        reached, hops = search_by_links(node, into, depth, visits, queue, links, loads)
        left = size - reached
        if left:
            count, width = _worst_run(into[node], reach, queue[:reached], starts, starts_before, piece_of)
            if count * bottom > top * width:
                top, bottom = count, width
        copies = (1 if 2 * node + 1 == period else 2) * (size // period)
        distance_sum += copies * (hops + left * (depth + 1))
    steps = depth + 1 if top else np.flatnonzero(loads)[-1]
    return steps, loads.sum(), top, bottom, distance_sum


@kernel
def depth_and_reach(degree: int, size: int) -> tuple[int, int]:
    """Return the largest T with d^T < m, and d^T."""
    depth, reach = 0, 1
    while reach * degree < size:
        depth, reach = depth + 1, reach * degree
    return depth, reach


@kernel
def kautz_period(degree: int, size: int) -> int:
    """Return the least c with (d + 1) c = 0 modulo m: nodes that far apart are alike."""
    one, other = degree + 1, size
    while other:
        one, other = other, one % other
    return size // one


@kernel
def _in_neighbors(degree: int, size: int) -> IntArray:
    """Tails of the arcs into each node, ascending; d different ones, for m > d."""
    into = np.empty((size, degree), dtype=np.int64)
    filled = np.zeros(size, dtype=np.int64)
    for tail in range(size):
        for offset in range(1, degree + 1):
            head = (-degree * tail - offset) % size
            into[head, filled[head]] = tail
            filled[head] += 1
    return into


@kernel
def _starts(degree: int, size: int, depth: int) -> tuple[IntArray, IntArray]:
    """Where the d^T numbers that walks of length T end at start, for each source; and how many start before each."""
    starts = np.arange(size)
    reach = 1
    for _ in range(depth):
        starts = (-degree * (starts + reach)) % size
        reach *= degree
    before = np.zeros(size + 1, dtype=np.int64)
    for start in starts:
        before[start + 1] += 1
    return starts, np.cumsum(before)


@kernel
def search_by_links(
    node: int, into: IntArray, depth: int, visits: IntArray, queue: IntArray, links: IntArray, loads: IntArray
) -> tuple[int, int]:
    """Find all sources up to a distance, each with the only link into `node` that it can use; raise the loads.

    Row x of `into` lists the tails of arcs into x.  Returns how many sources there are, and the sum of their distances.
    """
    degree = into.shape[1]
    counts = np.empty(degree, dtype=np.int64)
    visits[node] = node
    queue[0] = node
    begin, reached, hops = 0, 1, 0
    for distance in range(1, depth + 1):
        counts[:] = 0
        end = reached
        for place in range(begin, end):
            head = queue[place]
            for position in range(degree):
                tail = into[head, position]
                if visits[tail] != node:
                    visits[tail] = node
                    link = links[place] if distance > 1 else position
                    queue[reached], links[reached] = tail, link
                    reached += 1
                    counts[link] += 1
        begin = end
        hops += distance * (reached - end)
        loads[distance] = max(loads[distance], counts.max())
    return reached, hops


@kernel
def _worst_run(
    tails: IntArray, reach: int, sources: IntArray, starts: IntArray, starts_before: IntArray, piece_of: IntArray
) -> tuple[int, int]:
    """Return the largest c(S) / |S| over runs S of the links into a node, whose circle is cut into pieces."""
    size, degree = len(piece_of), len(tails)
    cuts = np.unique(np.concatenate(((tails + 1) % size, (tails - reach + 1) % size)))
    pieces = len(cuts)
    counts = np.empty(pieces, dtype=np.int64)
    for piece in range(pieces - 1):
        piece_of[cuts[piece] : cuts[piece + 1]] = piece
        counts[piece] = starts_before[cuts[piece + 1]] - starts_before[cuts[piece]]
    piece_of[cuts[-1] :] = pieces - 1
    piece_of[: cuts[0]] = pieces - 1
    counts[-1] = size - starts_before[cuts[-1]] + starts_before[cuts[0]]
    for source in sources:
        counts[piece_of[starts[source]]] -= 1
    before = np.zeros(pieces + 1, dtype=np.int64)
    before[1:] = np.cumsum(counts)
    top, bottom = before[-1], degree
    for previous in range(degree):
        lower = piece_of[(tails[previous] + 1) % size]
        for width in range(1, degree):
            following = tails[(previous + width + 1) % degree]
            gap = (following - tails[previous]) % size if width < degree - 1 else size
            if gap <= reach:
                continue
            upper = piece_of[(following - reach + 1) % size]
            count = before[upper] - before[lower] + (before[-1] if upper < lower else 0)
            if count * bottom > top * width:
                top, bottom = count, width
    return top, bottom


@cache
def kautz_transpose_factor(degree: int, size: int) -> Fraction:
    """Compute the least T_B of a breadth-first schedule on the transpose of one generalized Kautz graph."""
    _check(degree, size)
    load, top, bottom = _measure_transpose(degree, size)
    return Fraction(degree, size) * (load + Fraction(top, bottom))


@kernel_with(lambda degree, size: degree * size * size)
def _measure_transpose(degree: int, size: int) -> tuple[int, int, int]:
    """BFS from one node of each orbit, then the loads of the runs of stretches of the last step, as for the graph."""
    depth, reach = depth_and_reach(degree, size)
    period = kautz_period(degree, size)
    heads = (-degree * np.arange(size).reshape(-1, 1) - np.arange(1, degree + 1)) % size
    cuts = np.unique(np.arange(degree + 1) * reach % size)
    lengths = np.diff(np.append(cuts, size))
    widths = _widths(cuts, degree, reach, size)
    stretch_of = np.repeat(np.arange(len(cuts)), lengths)
    loads = np.zeros(depth + 1, dtype=np.int64)
    top, bottom = 0, 1
    visits = np.full(size, -1, dtype=np.int64)
    queue = np.empty(size, dtype=np.int64)
    links = np.empty(size, dtype=np.int64)
    for node in range((period + 1) // 2):
        reached, _ = search_by_links(node, heads, depth, visits, queue, links, loads)
        if reached < size:
            counts = lengths.copy()
            begin = _begin(node, degree, size, depth + 1)
            for source in queue[:reached]:
                counts[stretch_of[(source - begin) % size]] -= 1
            count, width = _worst_stretches(counts, widths)
            if count * bottom > top * width:
                top, bottom = count, width
    return loads.sum(), top, bottom


@kernel
def _begin(node: int, degree: int, size: int, length: int) -> int:
    """Return the first of the consecutive numbers at which walks of a length from a node end."""
    begin, reach = node, 1
    for _ in range(length):
        begin = (-degree * (begin + reach)) % size
        reach *= degree
    return begin


@kernel
def _widths(cuts: IntArray, degree: int, reach: int, size: int) -> IntArray:
    """Count the links that serve the run of stretches of each start and length."""
    stretches = len(cuts)
    widths = np.empty((stretches, stretches), dtype=np.int64)
    for first in range(stretches):
        used = np.zeros(degree, dtype=np.bool_)
        for gain in range(stretches):
            place = cuts[(first + gain) % stretches]
            while place < degree * reach:
                used[place // reach] = True
                place += size
            widths[first, gain] = used.sum()
    return widths


@kernel
def _worst_stretches(counts: IntArray, widths: IntArray) -> tuple[int, int]:
    """Return the numerator and denominator of the largest c(S) / |S| over the links S of runs of stretches."""
    stretches = len(counts)
    top, bottom = 0, 1
    for first in range(stretches):
        count = 0
        for gain in range(stretches):
            count += counts[(first + gain) % stretches]
            width = widths[first, gain]
            if count * bottom > top * width:
                top, bottom = count, width
    return top, bottom
