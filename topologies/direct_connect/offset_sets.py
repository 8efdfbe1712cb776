"""Sets of offsets of circulant graphs and digraphs to look through: all of them if they are few, else a sample."""

from __future__ import annotations

from itertools import chain, combinations, islice
from math import comb

import numpy as np

from ...support.arrays import IntArray

__all__ = ["digraph_offset_sets", "sample_with_one", "two_way_offset_sets"]


def digraph_offset_sets(n: int, degree: int, most: int) -> IntArray:
    """List sets of offsets of circulant digraphs.

    First come geometric sequences 1, h, h**2, ... modulo n, those with h**degree = 1 before the others.  A
    multiplication by such an h maps the digraph to itself and each arc of a node to the next: all are as good, so that
    a broadcast can load them evenly, and all-to-all too.  Then come all sets, if they are at most `most`; else all that
    have the offset 1, if these are; else the sample of `sample_with_one`.  Multiplying all offsets by a number prime to
    n gives an isomorphic graph, so sets with the offset 1 stand for all that have an offset prime to n.

    Shapes: returns int64 (sets, degree).

    >>> digraph_offset_sets(4, 2, 10).tolist()
    [[1, 3], [1, 2], [1, 2], [1, 3], [2, 3]]
    >>> digraph_offset_sets(7, 3, 1)[0].tolist()
    [1, 2, 4]
    """
    return np.concatenate((_geometric(n, degree, n - 1), _subsets(n - 1, degree, most)))


def two_way_offset_sets(n: int, degree: int, most: int) -> IntArray:
    """List sets of offsets that hold -a with each a, modulo n, so that each link has an opposite one.

    As for `digraph_offset_sets`, with pairs of offsets in place of offsets.

    Shapes: returns int64 (sets, degree).

    >>> two_way_offset_sets(8, 3, 10).tolist()
    [[1, 7, 4], [1, 7, 4], [1, 7, 4], [2, 6, 4], [3, 5, 4]]
    """
    pairs, below = degree // 2, (n - 1) // 2
    if degree % 2 and n % 2:
        return np.empty((0, degree), dtype=np.int64)
    halves = np.concatenate((_geometric(n, pairs, below), _subsets(below, pairs, most)))
    middle = np.full((len(halves), degree % 2), n // 2, dtype=np.int64)
    return np.concatenate((halves, n - halves, middle), axis=1)


def sample_with_one(largest: int, size: int, numbers: range) -> IntArray:
    """List sets of numbers from 1 to `largest` that contain 1, spread evenly over all such sets.

    Shapes: returns int64 (sets, size).

    >>> sample_with_one(100, 3, range(2)).tolist()
    [[1, 8, 27], [1, 2, 65]]
    """
    # The additive recurrence of least discrepancy known in each dimension: powers of the root g of g**size = g + 1.
    root = 1.0
    for _ in range(64):
        root = (1 + root) ** (1 / size)
    steps = np.array([root**-axis for axis in range(1, size)])
    spread = (0.5 + (np.array(numbers)[:, None] + 1) * steps) % 1 * (largest - 1)
    rows = np.ones((len(numbers), size), dtype=np.int64)
    rows[:, 1:] = 2 + spread.astype(np.int64)
    rows.sort(axis=1)
    for row in np.flatnonzero((rows[:, 1:] == rows[:, :-1]).any(axis=1)):
        rows[row] = _filled({*rows[row].tolist()}, size, largest)
    return rows


def _filled(chosen: set[int], size: int, largest: int) -> list[int]:
    """Add the least numbers that are missing until there are `size` of them."""
    free = (number for number in range(2, largest + 1) if number not in chosen)
    return sorted(chosen | set(islice(free, size - len(chosen))))


def _subsets(largest: int, size: int, most: int) -> IntArray:
    """Sets of numbers from 1 to `largest`: all, all with 1, or a sample of these, whatever is at most `most` first."""
    if comb(largest, size) <= most:
        return _combinations(range(1, largest + 1), size)
    if comb(largest - 1, size - 1) <= most:
        rest = _combinations(range(2, largest + 1), size - 1)
        return np.concatenate((np.ones((len(rest), 1), dtype=np.int64), rest), axis=1)
    return sample_with_one(largest, size, range(most))


def _combinations(numbers: range, size: int) -> IntArray:
    flat = np.fromiter(chain.from_iterable(combinations(numbers, size)), dtype=np.int64)
    return flat.reshape(comb(len(numbers), size), size)


def _geometric(n: int, size: int, largest: int) -> IntArray:
    """Sequences 1, h, h**2, ... modulo n, of different numbers; those above `largest` stand for their negatives.

    Those that return to 1, or to -1 if that is as good, come first.
    """
    ratios = np.arange(2, largest + 1)
    powers = np.ones((len(ratios), size + 1), dtype=np.int64)
    for place in range(1, size + 1):
        powers[:, place] = powers[:, place - 1] * ratios % n
    if largest < n - 1:
        powers = np.minimum(powers, n - powers)
    powers = powers[np.argsort(powers[:, -1] != 1, kind="stable"), :-1]
    powers.sort(axis=1)
    # A power that is 0 or n / 2 here has no two links to give.
    usable = (powers[:, 0] > 0) & (powers[:, -1] <= largest) & (powers[:, 1:] != powers[:, :-1]).all(axis=1)
    found: IntArray = powers[usable]
    return found
