"""Exact costs of breadth-first broadcast on circulant digraphs, and distances on metacirculant ones, for many at once.

Rotations make all nodes equivalent.  With h the distances from node 0, the arc with offset a can bring the shard from x
nodes back if h(x - a) = h(x) - 1, and the least load of a step is U(t) = max c(S) / |S| over sets S of offsets, as in
`load_balancing`; see docs/explanation/algorithms.md.
"""

from math import lcm
from typing import NamedTuple

import numpy as np

from ...errors import UnsupportedError
from ...support.arrays import IntArray
from ...support.kernels import kernel, kernel_with

MAX_OFFSETS = 10  # limit of offsets, since all their subsets are enumerated at every distance
WORD = 64  # bits per word, one for each node
UNREACHABLE = 2**62  # where a set does not generate the group


class CirculantCosts(NamedTuple):
    """Costs of the best breadth-first broadcasts, one for each set of offsets."""

    steps: IntArray  # int64 (sets,): the diameter; 0 if dominated by an earlier set, or if the graph is not connected
    loads: IntArray  # int64 (sets,): sum of U(t) over all distances, times `unit`
    hops: IntArray  # int64 (sets,): sum of the distances from one node
    unit: int  # a common multiple of 1 to d


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
    shares = _shares(degree, unit)
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
def _shares(degree: int, unit: int) -> IntArray:
    """Return, for each subset of offsets, `unit` over its size; 0 for the empty set."""
    sizes = np.zeros(1 << degree, dtype=np.int64)
    shares = np.zeros(1 << degree, dtype=np.int64)
    for subset in range(1, 1 << degree):
        sizes[subset] = sizes[subset >> 1] + (subset & 1)
        shares[subset] = unit // sizes[subset]
    return shares


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
