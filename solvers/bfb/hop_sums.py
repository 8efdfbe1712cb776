"""Sums of distances on metacirculant digraphs, for many sets of generators at once, by breadth-first search."""

from __future__ import annotations

import numpy as np

from ...support.arrays import IntArray
from ...support.compiling.kernels import kernel

UNREACHABLE = 2**62  # where a set does not generate the group


@kernel
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
        place, found = 0, 1
        while place < found:
            node = queue[place]
            place += 1
            for axis in range(degree):
                first, second = sets[number, axis] // k, node % k
                head = (node // k + powers[second] * first) % m * k + (second + sets[number, axis]) % k
                if hops[head] < 0:
                    hops[head] = hops[node] + 1
                    queue[found] = head
                    found += 1
        sums[number] = hops.sum() if found == size else UNREACHABLE
    return sums
