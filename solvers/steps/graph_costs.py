"""Exact costs of breadth-first broadcast on circulant and Kautz graphs, and distances on metacirculant ones.

The least load of a step is U(t) = max c(S) / |S| over sets S of links into a rank, as in `load_balancing`; on Kautz
graphs only *runs* of links that are adjacent on the circle count (Theorem 19).  Proofs: docs/explanation/algorithms.md.
"""

from fractions import Fraction
from functools import cache
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray
from ...support.kernels import kernel, kernel_with

MAX_OFFSETS = 10  # limit of offsets, since all their subsets are enumerated at every distance
WORD = 64  # bits per word, one for each node
UNREACHABLE = 2**62  # where a set does not generate the group


class CirculantCosts(NamedTuple):
    """Costs of the best breadth-first broadcasts, one for each set of offsets; `unit` is a multiple of 1 to d."""

    steps: IntArray  # int64 (sets,): the diameter; 0 if dominated by an earlier set, or if the graph is not connected
    loads: IntArray  # int64 (sets,): sum of U(t) over all distances, times `unit`
    hops: IntArray  # int64 (sets,): sum of the distances from one node
    unit: int


def circulant_costs(n: int, offsets: IntArray) -> CirculantCosts:
    """Compute the costs of breadth-first broadcast on circulant digraphs of n nodes; `offsets` int64 (sets, d)."""
    degree = offsets.shape[1]
    if degree > MAX_OFFSETS:
        raise UnsupportedError(
            f"there are {degree} offsets; expected at most {MAX_OFFSETS} to look at all sets of them"
        )
    unit = lcm(*range(1, degree + 1))
    costs = _costs(n, np.ascontiguousarray(offsets, dtype=np.int64), unit)
    return CirculantCosts(costs[0], costs[1], costs[2], unit)


@kernel_with(lambda n, offsets, _: n * offsets.size)
def _costs(n: int, offsets: IntArray, unit: int) -> IntArray:
    sets, degree = offsets.shape
    costs = np.zeros((3, sets), dtype=np.int64)
    hops, queue = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    inside = np.empty(1 << degree, dtype=np.int64)
    shares = np.zeros(1 << degree, dtype=np.int64)  # of each subset of offsets: `unit` over its size
    for subset in range(1, 1 << degree):
        size, left = 0, subset
        while left:
            size, left = size + (left & 1), left >> 1
        shares[subset] = unit // size
    max_steps = n - 1
    best_loads = np.full(n, unit * n, dtype=np.int64)  # of loads, by most steps
    for number in range(sets):
        if n <= WORD and not _is_within(n, offsets[number], max_steps):
            continue
        if not _search(n, offsets[number], hops, queue, max_steps):
            continue
        steps, load, begin = hops[queue[n - 1]], 0, 1
        # An even load bounds the rest from below.
        while begin < n and load + unit // degree * (n - begin) <= best_loads[steps]:
            end = begin + 1
            while end < n and hops[queue[end]] == hops[queue[begin]]:
                end += 1
            load += _busiest(n, offsets[number], hops, queue[begin:end], shares, inside)
            begin = end
        if begin < n or load > best_loads[steps]:
            continue
        costs[0, number] = steps
        costs[1, number] = load
        costs[2, number] = hops.sum()
        best_loads[steps:] = np.minimum(best_loads[steps:], load)
        if load * degree == unit * (n - 1):
            max_steps = steps
    return costs


@kernel
def _is_within(n: int, offsets: IntArray, max_steps: int) -> bool:
    """Return whether the diameter is at most `max_steps`, by rotations of a node set in the bits of a word."""
    everything = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - n)
    reached = np.uint64(1)
    for _ in range(max_steps):
        turned = reached
        for offset in offsets:
            turned |= reached << np.uint64(offset) | reached >> np.uint64(n - offset)
        reached = turned & everything
        if reached == everything:
            return True
    return False


@kernel
def _search(n: int, offsets: IntArray, hops: IntArray, queue: IntArray, max_hops: int) -> bool:
    """Run BFS from node 0; return False if a node is more than `max_hops` hops away or unreachable."""
    hops[:] = -1
    hops[0], queue[0] = 0, 0
    done, reached = 0, 1
    while done < reached < n:
        node = queue[done]
        done += 1
        if hops[node] == max_hops:
            return False
        for offset in offsets:
            head = node + offset
            if head >= n:
                head -= n
            if hops[head] < 0:
                hops[head] = hops[node] + 1
                queue[reached] = head
                reached += 1
    return reached == n


@kernel
def _busiest(n: int, offsets: IntArray, hops: IntArray, layer: IntArray, shares: IntArray, inside: IntArray) -> int:
    """Return U of one distance in the shares' unit: sum the histogram of masks over subsets (zeta transform)."""
    inside[:] = 0
    for node in layer:
        mask = 0
        for place in range(len(offsets)):
            tail = node - offsets[place]
            if tail < 0:
                tail += n
            if hops[tail] == hops[node] - 1:
                mask |= 1 << place
        inside[mask] += 1
    size = len(inside)
    for place in range(len(offsets)):
        for high in range(0, size, 2 << place):
            for subset in range(high, high + (1 << place)):
                inside[subset + (1 << place)] += inside[subset]
    load = 0
    for subset in range(1, size):
        load = max(load, inside[subset] * shares[subset])
    return load


@kernel_with(lambda m, powers, sets: 2 * m * len(powers) * sets.size)
def hop_sums(m: int, powers: IntArray, sets: IntArray) -> IntArray:
    """Sum the distances from element 0 of a split metacyclic group, int64 (sets,).

    Element a k + b times element c k + e is (a + r^b c modulo m) k + (b + e modulo k).  Shapes: `powers` int64 (k,), of
    r modulo m; `sets` int64 (sets, degree).
    """
    k, degree = len(powers), sets.shape[1]
    size = m * k
    sums = np.empty(len(sets), dtype=np.int64)
    hops, queue = np.empty(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for number in range(len(sets)):
        hops[:] = -1
        hops[0] = 0
        place, reached = 0, 1
        while place < reached:
            node = queue[place]
            place += 1
            for axis in range(degree):
                first, second = sets[number, axis] // k, node % k
                head = (node // k + powers[second] * first) % m * k + (second + sets[number, axis]) % k
                if hops[head] < 0:
                    hops[head] = hops[node] + 1
                    queue[reached] = head
                    reached += 1
        sums[number] = hops.sum() if reached == size else UNREACHABLE
    return sums


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
    return size // gcd(degree + 1, size)


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
