"""Candidate offset sets of circulant graphs and digraphs: all if they are few, else a low-discrepancy sample."""

from __future__ import annotations

from itertools import chain, combinations, islice
from math import comb

import numpy as np

from ...support.arrays import IntArray


def digraph_offset_sets(n: int, degree: int, most: int) -> IntArray:
    """List sets of offsets of circulant digraphs.

    First come geometric sequences 1, h, h**2, ... modulo n, those with h**degree = 1 before the others: multiplication
    by such an h is an automorphism that permutes the arcs of a node, so that broadcasts and all-to-all can load all
    arcs evenly.  Then come all sets, if they are at most `most`; else all with the offset 1, if these are; else the
    sample of `sampled_offset_sets`.  Multiplying all offsets by a number prime to n gives an isomorphic graph, so sets
    with the offset 1 represent all that have an offset prime to n.

    Shapes: returns int64 (sets, degree).
    """
    return np.concatenate((_geometric(n, degree, n - 1), _subsets(n - 1, degree, most)))


def bidirectional_offset_sets(n: int, degree: int, most: int) -> IntArray:
    """List sets of offsets that contain -a with each a, modulo n, so that each link has an opposite one.

    As for `digraph_offset_sets`, with pairs of offsets in place of offsets.

    Shapes: returns int64 (sets, degree).
    """
    pairs, below = degree // 2, (n - 1) // 2
    if degree % 2 and n % 2:
        return np.empty((0, degree), dtype=np.int64)
    halves = np.concatenate((_geometric(n, pairs, below), _subsets(below, pairs, most)))
    middle = np.full((len(halves), degree % 2), n // 2, dtype=np.int64)
    return np.concatenate((halves, n - halves, middle), axis=1)


def sampled_offset_sets(largest: int, size: int, numbers: range) -> IntArray:
    """Sample sets of numbers from 1 to `largest` that contain 1, spread evenly over all such sets.

    Shapes: returns int64 (sets, size).
    """
    # The additive recurrence of least discrepancy known in each dimension: powers of the root g of g**size = g + 1.
    root = 1.0
    for _ in range(64):
        root = (1 + root) ** (1 / size)
    steps = np.array([root**-axis for axis in range(1, size)])
    places = (0.5 + (np.array(numbers)[:, None] + 1) * steps) % 1 * (largest - 1)
    rows = np.ones((len(numbers), size), dtype=np.int64)
    rows[:, 1:] = 2 + places.astype(np.int64)
    rows.sort(axis=1)
    for row in np.flatnonzero((rows[:, 1:] == rows[:, :-1]).any(axis=1)):
        rows[row] = _completed({*rows[row].tolist()}, size, largest)
    return rows


def _completed(chosen: set[int], size: int, largest: int) -> list[int]:
    """Add the least missing numbers until there are `size`."""
    free = (number for number in range(2, largest + 1) if number not in chosen)
    return sorted(chosen | set(islice(free, size - len(chosen))))


def _subsets(largest: int, size: int, most: int) -> IntArray:
    """Return all sets of numbers from 1 to `largest`, all with 1, or a sample: the first that has at most `most`."""
    if comb(largest, size) <= most:
        return _combinations(range(1, largest + 1), size)
    if comb(largest - 1, size - 1) <= most:
        rest = _combinations(range(2, largest + 1), size - 1)
        return np.concatenate((np.ones((len(rest), 1), dtype=np.int64), rest), axis=1)
    return sampled_offset_sets(largest, size, range(most))


def _combinations(numbers: range, size: int) -> IntArray:
    flat = np.fromiter(chain.from_iterable(combinations(numbers, size)), dtype=np.int64)
    return flat.reshape(comb(len(numbers), size), size)


def _geometric(n: int, size: int, largest: int) -> IntArray:
    """Return geometric sequences 1, h, h**2, ... modulo n of distinct numbers, as absolute values up to `largest`.

    Those that return to 1, or to -1 if offsets are bidirectional, come first.
    """
    ratios = np.arange(2, largest + 1)
    powers = np.ones((len(ratios), size + 1), dtype=np.int64)
    for place in range(1, size + 1):
        powers[:, place] = powers[:, place - 1] * ratios % n
    if largest < n - 1:
        powers = np.minimum(powers, n - powers)
    powers = powers[np.argsort(powers[:, -1] != 1, kind="stable"), :-1]
    powers.sort(axis=1)
    # An offset of 0 or n / 2 is not a pair of links.
    usable = (powers[:, 0] > 0) & (powers[:, -1] <= largest) & (powers[:, 1:] != powers[:, :-1]).all(axis=1)
    found: IntArray = powers[usable]
    return found
