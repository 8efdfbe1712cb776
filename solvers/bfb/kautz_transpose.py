"""Exact T_B of breadth-first broadcast on transposed generalized Kautz graphs; see `kautz_bandwidth` for the graphs.

That is also what the best breadth-first reduce-scatter on the graphs takes (direct-connect paper, Corollary 1.1).  Each
of the d links stands for a *block* of d^T consecutive numbers; between the ends of blocks, in a *stretch*, all sources
are alike, and it is enough to look at all runs of stretches.  Proof: docs/explanation/algorithms.md.
"""

from __future__ import annotations

from fractions import Fraction

import numba
import numpy as np

from ...support.arrays import IntArray
from .kautz_bandwidth import check_kautz, depth_and_reach, kautz_period, search_by_links

COLUMNS = 3


def kautz_transpose_factor(degree: int, size: int) -> Fraction:
    """Compute the least T_B of a breadth-first schedule on the transpose of one generalized Kautz graph."""
    check_kautz(degree, size)
    return as_transpose_factor(degree, size, kautz_transpose_table(degree, size, size)[0])


def as_transpose_factor(degree: int, size: int, row: IntArray) -> Fraction:
    """Read one row of `kautz_transpose_table`."""
    whole, top, bottom = map(int, row)
    return Fraction(degree, size) * (whole + Fraction(top, bottom))


@numba.njit(cache=True, nogil=True)
def kautz_transpose_table(degree: int, first: int, last: int) -> IntArray:
    """Measure the transposes of the graphs of `first` to `last` nodes. Shapes: returns int64 (last - first + 1, 3)."""
    rows = np.empty((last - first + 1, COLUMNS), dtype=np.int64)
    for size in range(first, last + 1):
        _measure(degree, size, rows[size - first])
    return rows


@numba.njit(cache=True, nogil=True)
def _measure(degree: int, size: int, row: IntArray) -> None:
    """Fill in one row: BFS from one node of each orbit, then the loads of the runs of stretches of the last step."""
    depth, reach = depth_and_reach(degree, size)
    period = kautz_period(degree, size)
    heads = (-degree * np.arange(size).reshape(-1, 1) - np.arange(1, degree + 1)) % size
    cuts = np.unique(np.arange(degree + 1) * reach % size)
    lengths = np.diff(np.append(cuts, size))
    widths = _widths(cuts, degree, reach, size)
    stretch_of = np.repeat(np.arange(len(cuts)), lengths)
    loads = np.zeros(depth + 1, dtype=np.int64)
    top, bottom = 0, 1
    seen = np.full(size, -1, dtype=np.int64)
    queue = np.empty(size, dtype=np.int64)
    links = np.empty(size, dtype=np.int64)
    for node in range((period + 1) // 2):
        found, _ = search_by_links(node, heads, depth, seen, queue, links, loads)
        if found < size:
            counts = lengths.copy()
            begin = _begin(node, degree, size, depth + 1)
            for source in queue[:found]:
                counts[stretch_of[(source - begin) % size]] -= 1
            count, width = _worst_run(counts, widths)
            if count * bottom > top * width:
                top, bottom = count, width
    row[0], row[1], row[2] = loads.sum(), top, bottom


@numba.njit(cache=True, nogil=True)
def _begin(node: int, degree: int, size: int, length: int) -> int:
    """Return the first of the consecutive numbers at which walks of a length from a node end."""
    begin, reach = node, 1
    for _ in range(length):
        begin = (-degree * (begin + reach)) % size
        reach *= degree
    return begin


@numba.njit(cache=True, nogil=True)
def _widths(cuts: IntArray, degree: int, reach: int, size: int) -> IntArray:
    """Count the links that serve the run of stretches of each start and length."""
    stretches = len(cuts)
    widths = np.empty((stretches, stretches), dtype=np.int64)
    for first in range(stretches):
        used = np.zeros(degree, dtype=np.bool_)
        for more in range(stretches):
            place = cuts[(first + more) % stretches]
            while place < degree * reach:
                used[place // reach] = True
                place += size
            widths[first, more] = used.sum()
    return widths


@numba.njit(cache=True, nogil=True)
def _worst_run(counts: IntArray, widths: IntArray) -> tuple[int, int]:
    """Return the numerator and denominator of the largest c(S) / |S| over the links S of runs of stretches."""
    stretches = len(counts)
    top, bottom = 0, 1
    for first in range(stretches):
        count = 0
        for more in range(stretches):
            count += counts[(first + more) % stretches]
            width = widths[first, more]
            if count * bottom > top * width:
                top, bottom = count, width
    return top, bottom
