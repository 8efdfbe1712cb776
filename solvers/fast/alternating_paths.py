"""Augmenting paths in bipartite graphs of rows and columns, for matchings that are repaired over and over.

A path leads from an unmatched row by an edge to a column, from there to the row that it is matched with, and so on to a
free column; matching along it adds one row.  All functions work on arrays of the caller: `match` has each row's column
or -1, `owner` each column's row, and `parent` is left with the row that a path comes to each column from.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from ...support.arrays import IntArray, ShortArray

__all__ = ["flip", "shortest_path", "widest_path"]

MaskArray = npt.NDArray[np.uint64]


def _of_lowest_bit(_context: Any, word: Any) -> Any:
    """Place of the lowest bit of a word that is not 0."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(word), generate


_lowest: Any = intrinsic(_of_lowest_bit)


@numba.njit(cache=True, nogil=True)
def shortest_path(
    row: int,
    edges: MaskArray,
    free: MaskArray,
    owner: ShortArray,
    parent: ShortArray,
    queue: ShortArray,
    seen: MaskArray,
) -> int:
    """Find a shortest path from `row` to a free column, breadth first, and return that column; there has to be one.

    Shapes: `edges` uint64 (n, words); `free` uint64 (words,); `owner`, `parent` int16 (n,); `queue` int16 (n + 1,);
    `seen` uint64 (words,).
    """
    words = len(free)
    seen[:] = 0
    queue[0] = row
    done, size = 0, 1
    while done < size:
        at = queue[done]
        done += 1
        for word in range(words):
            wanted = edges[at, word] & free[word]
            if wanted:
                column: int = (word << 6) + _lowest(wanted)
                parent[column] = at
                return column
        for word in range(words):
            fresh = edges[at, word] & ~seen[word]
            seen[word] |= fresh
            while fresh:
                column = (word << 6) + _lowest(fresh)
                fresh &= fresh - np.uint64(1)
                parent[column] = at
                queue[size] = owner[column]
                size += 1
    raise AssertionError("equal row and column sums have a perfect matching")


@numba.njit(cache=True, nogil=True)
def widest_path(
    row: int,
    width: int,
    entries: IntArray,
    rows: IntArray,
    columns: IntArray,
    owner: ShortArray,
    parent: ShortArray,
    reach: IntArray,
) -> tuple[int, int]:
    """Grow the tree of widest paths from `row` up to a free column; return that column, and the width left.

    Shapes: `entries` int64 (n, n); `rows`, `columns` int64 (n,); `owner`, `parent` int16 (n,); `reach` int64 (n,).
    """
    n = len(entries)
    reach[:] = 0
    at = row
    while True:
        best, widest = -1, -1
        for column in range(n):
            if reach[column] < 0:  # the tree has been there
                continue
            wide = min(width, entries[at, column] + min(rows[at], columns[column]))
            if wide > reach[column]:
                reach[column] = wide
                parent[column] = at
            # Of equally wide ways the one that ends here is best.
            rank = 2 * reach[column] + (owner[column] < 0)
            if rank > widest:
                best, widest = column, rank
        width = min(width, reach[best])
        if owner[best] < 0:
            return best, width
        reach[best] = -1
        at = owner[best]


@numba.njit(cache=True, nogil=True)
def flip(row: int, column: int, match: ShortArray, owner: ShortArray, parent: ShortArray) -> None:
    """Match along the path from `row` to the free `column`."""
    while True:
        at = parent[column]
        before = match[at]
        match[at] = column
        owner[column] = at
        if at == row:
            return
        column = before
