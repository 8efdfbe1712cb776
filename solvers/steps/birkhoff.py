"""Birkhoff decomposition: square integer matrices as weighted sums of permutation matrices (FAST, section 4.4).

Functions on augmenting paths work on arrays of the caller: `match` holds each row's column or -1, `owner` each column's
row, `parent` the row before each column.
"""

import numpy as np
import numpy.typing as npt

from ...support.arrays import IntArray, ShortArray
from ...support.kernels import kernel

MaskArray = npt.NDArray[np.uint64]


DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)  # 64 bits that have each number of 6 bits once
PLACES = np.zeros(64, dtype=np.int64)  # by the first 6 bits of `DE_BRUIJN`, shifted: by how much
for _shift in range(64):
    PLACES[(int(DE_BRUIJN) << _shift) % 2**64 >> 58] = _shift


@kernel
def lowest_bit(word: np.uint64) -> int:
    """Count the trailing zeros of a nonzero word."""
    alone = word & (~word + np.uint64(1))
    return PLACES[(alone * DE_BRUIJN) >> np.uint64(58)]  # type: ignore[no-any-return]


@kernel
def shortest_path(
    row: int,
    edges: MaskArray,
    free: MaskArray,
    owner: ShortArray,
    parent: ShortArray,
    queue: ShortArray,
    visited: MaskArray,
) -> int:
    """Find a shortest augmenting path from `row` by BFS, and return its free column; one must exist.

    Shapes: `edges` uint64 (n, words); `free` uint64 (words,); `owner`, `parent` int16 (n,); `queue` int16 (n + 1,);
    `visited` uint64 (words,).
    """
    words = len(free)
    visited[:] = 0
    queue[0] = row
    done, size = 0, 1
    while done < size:
        at = queue[done]
        done += 1
        for word in range(words):
            ends = edges[at, word] & free[word]
            if ends:
                column: int = (word << 6) + lowest_bit(ends)
                parent[column] = at
                return column
        for word in range(words):
            fresh = edges[at, word] & ~visited[word]
            visited[word] |= fresh
            while fresh:
                column = (word << 6) + lowest_bit(fresh)
                fresh &= fresh - np.uint64(1)
                parent[column] = at
                queue[size] = owner[column]
                size += 1
    raise AssertionError("equal row and column sums have a perfect matching")


@kernel
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
    """Find a widest augmenting path from `row` (Dijkstra); return its free column and its width.

    Shapes: `entries` int64 (n, n); `rows`, `columns` int64 (n,); `owner`, `parent` int16 (n,); `reach` int64 (n,).
    """
    n = len(entries)
    reach[:] = 0
    at = row
    while True:
        best, widest = -1, -1
        for column in range(n):
            if reach[column] < 0:  # already in the tree
                continue
            wide = min(width, entries[at, column] + min(rows[at], columns[column]))
            if wide > reach[column]:
                reach[column] = wide
                parent[column] = at
            # Prefer a free column among equally wide ones.
            rank = 2 * reach[column] + (owner[column] < 0)
            if rank > widest:
                best, widest = column, rank
        width = min(width, reach[best])
        if owner[best] < 0:
            return best, width
        reach[best] = -1
        at = owner[best]


@kernel
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


DECOMPOSITIONS = {"plain": 0, "fewest": 1}  # codes of the decompositions in kernels


@kernel
def matchings(matrix: IntArray, way: int) -> tuple[ShortArray, IntArray]:
    """Embed and decompose a matrix, (n, n), of entries from 0 whose sums fit 64 bits.

    Returns int16 permutations (steps, n) and int64 weights (steps,).
    """
    n = len(matrix)
    residual = np.empty((n, n), dtype=np.int64)
    bound = embed(matrix, residual)
    limit = max_matchings(n) if bound else 0
    permutations = np.empty((limit, n), dtype=np.int16)
    weights = np.empty(limit, dtype=np.int64)
    count = -1
    if way == 1:
        count = wide_matchings(matrix, bound, permutations, weights)
    if count < 0:
        count = plain_matchings(residual, bound, permutations, weights)
    return permutations[:count], weights[:count]


@kernel
def max_matchings(n: int) -> int:
    """Return the upper bound of the number of steps of the plain way."""
    return n * n - 2 * n + 2


@kernel
def embed(matrix: IntArray, residual: IntArray) -> int:
    """Embed `matrix` into `residual` of equal row and column sums, and return that sum."""
    n = len(matrix)
    # Sums of rows and columns; their maximum is the sum that all get.
    rows, columns = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for row in range(n):
        for column in range(n):
            entry = matrix[row, column]
            residual[row, column] = entry
            rows[row] += entry
            columns[column] += entry
    bound = 0
    for node in range(n):
        bound = max(bound, rows[node], columns[node])
    # Fill the deficits from the north-west corner on.
    row, column = 0, 0
    while row < n and column < n:
        # The deficits of rows and columns have equal totals, so both run out at the same time.
        added = min(bound - rows[row], bound - columns[column])
        residual[row, column] += added
        rows[row] += added
        columns[column] += added
        if rows[row] == bound:
            row += 1
        else:
            column += 1
    return bound


@kernel
def plain_matchings(residual: IntArray, bound: int, permutations: ShortArray, weights: IntArray) -> int:
    """Subtract matchings until nothing is left; return their number.  `residual` is overwritten."""
    n = len(residual)
    words = (n + 63) // 64
    # Bit masks of positive entries by row, and of free columns.
    positive = np.zeros((n, words), dtype=np.uint64)
    free = np.zeros(words, dtype=np.uint64)
    for row in range(n):
        free[row >> 6] |= _bit(row)
        for column in range(n):
            if residual[row, column] > 0:
                positive[row, column >> 6] |= _bit(column)
    # `left` holds the remainders of matched entries; `residual` gets them back once they are unmatched.
    left = np.zeros(n, dtype=np.int64)
    match, owner = np.full(n, -1, dtype=np.int16), np.empty(n, dtype=np.int16)
    parent, queue = np.empty(n, dtype=np.int16), np.empty(n + 1, dtype=np.int16)
    visited = np.empty(words, dtype=np.uint64)
    count = 0
    while bound > 0:
        # Unmatch entries that are used up.
        for row in range(n):
            if left[row] == 0 and match[row] >= 0:
                column = match[row]
                match[row] = -1
                residual[row, column] = 0
                free[column >> 6] |= _bit(column)
                positive[row, column >> 6] &= ~_bit(column)
        # Match their rows again, along shortest augmenting paths.
        for row in range(n):
            if match[row] < 0:
                end = shortest_path(row, positive, free, owner, parent, queue, visited)
                free[end >> 6] &= ~_bit(end)
                _flip(row, end, residual, left, match, owner, parent)
        # Subtract the matching as often as its smallest entry allows.
        weight = bound
        for row in range(n):
            weight = min(weight, left[row])
        for row in range(n):
            left[row] -= weight
            permutations[count, row] = match[row]
        weights[count] = weight
        bound -= weight
        count += 1
    return count


@kernel
def _flip(
    row: int, column: int, residual: IntArray, left: IntArray, match: ShortArray, owner: ShortArray, parent: ShortArray
) -> None:
    """Flip an augmenting path as `flip` does, and exchange the remainders of matched entries."""
    while True:
        at = parent[column]
        before = match[at]
        if before >= 0:
            residual[at, before] = left[at]
        left[at] = residual[at, column]
        match[at] = column
        owner[column] = at
        if at == row:
            return
        column = before


@kernel
def wide_matchings(matrix: IntArray, bound: int, permutations: ShortArray, weights: IntArray) -> int:
    """Subtract widest matchings until nothing is left; return their number, or -1 if `permutations` is too small.

    The embedding is lazy: a row and a column with deficits of at least x take x more than their entry, so entry (i, j)
    counts as ``matrix[i, j] + min(deficit of i, deficit of j)``.  Both terms only fall, and so does `width`, the width
    of the widest augmenting path.
    """
    n = len(matrix)
    left = matrix.copy()
    rows, columns = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for node in range(n):
        rows[node], columns[node] = bound - matrix[node].sum(), bound - matrix[:, node].sum()
    match, owner = np.full(n, -1, dtype=np.int16), np.full(n, -1, dtype=np.int16)
    parent = np.empty(n, dtype=np.int16)
    reach = np.empty(n, dtype=np.int64)
    width, count = bound, 0
    while bound > 0:
        if count == len(weights):
            return -1
        # Unmatch entries that are narrower than the width so far.
        for row in range(n):
            column = match[row]
            if column >= 0 and left[row, column] + min(rows[row], columns[column]) < width:
                match[row], owner[column] = -1, -1
        # Match their rows again, along widest augmenting paths.
        for row in range(n):
            if match[row] < 0:
                end, width = widest_path(row, width, left, rows, columns, owner, parent, reach)
                flip(row, end, match, owner, parent)
        # Subtract the matching; where an entry is too small, the deficits of row and column make up for it.
        for row in range(n):
            column = match[row]
            permutations[count, row] = column
            padding = max(0, width - left[row, column])
            left[row, column] -= width - padding
            rows[row] -= padding
            columns[column] -= padding
        weights[count] = width
        bound -= width
        count += 1
    return count


@kernel
def _bit(place: int) -> np.uint64:
    return np.uint64(1) << np.uint64(place & 63)
