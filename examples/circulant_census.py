"""Which circulant graphs C(n, {a, b}) and C(n, {a, b, c}) have a bandwidth-optimal breadth-first broadcast: a census.

With links both ways along every offset, averaging a schedule with its mirror image (v to -v) shows that only offsets
matter: a shard at distance t may use an offset if a link along it, either way, leads to distance t - 1.  By Hall's
theorem all loads of step t can be even if and only if, for every set R of the k offsets, at least |R| / k of the nodes
at distance t may use an offset of R.  So each step takes a few unions of sets of nodes, held as bits.

Multiplying all nodes by a unit modulo n is an isomorphism, and takes any offset to gcd(offset, n).  So it is enough to
look at sets whose least gcd g is that of the offset g itself; each stands for as many sets as the numbers below count:
every set is met once for each of its offsets of this gcd, in each of the images of g.

Run ``python examples/circulant_census.py --offsets 3 --up-to 1000`` for the whole range, some minutes on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
SHARES = 6
"""A set with m offsets of the least gcd is met m times, m at most 3: counts in sixths are whole."""


class Count(NamedTuple):
    """Connected circulant graphs of one size, all offsets below n/2."""

    graphs: int
    failing: int
    least_diameter: int
    least_optimal_diameter: int


@numba.njit(inline="always")
def _population(word: np.uint64) -> np.int64:
    word = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@numba.njit
def _shift(level: Words, by: int, reached: Words) -> None:
    """Add to `reached` all nodes of `level` plus `by`, and then minus, without going round."""
    words, bits = by >> 6, np.uint64(by & 63)
    rest = np.uint64(64) - bits
    for place in range(len(level) - words):
        reached[place + words] |= level[place] << bits
        reached[place] |= level[place + words] >> bits
        if bits and place + words + 1 < len(level):
            reached[place + words + 1] |= level[place] >> rest
            reached[place] |= level[place + words + 1] << rest


@numba.njit
def figures(n: int, offsets: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Diameter, and the first step whose loads cannot be even; 0 if there is none."""
    k, count = len(offsets), (n + 63) // 64
    everything, level, seen = np.zeros(count, np.uint64), np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    for node in range(n):
        everything[node >> 6] |= np.uint64(1) << np.uint64(node & 63)
    level[0] = seen[0] = np.uint64(1)
    usable, found, step, uneven = np.zeros((k, count), np.uint64), 1, 0, 0
    while found < n:
        step += 1
        usable[:] = np.uint64(0)
        for which in range(k):
            _shift(level, offsets[which], usable[which])
            _shift(level, n - offsets[which], usable[which])
        due = 0
        for word in range(count):
            level[word] = np.uint64(0)
            for which in range(k):
                usable[which, word] &= everything[word] & ~seen[word]
                level[word] |= usable[which, word]
            seen[word] |= level[word]
            due += _population(level[word])
        found += due
        for chosen in range(1, (1 << k) - 1):
            size, reached = 0, 0
            for which in range(k):
                size += chosen >> which & 1
            for word in range(count):
                union = np.uint64(0)
                for which in range(k):
                    if chosen >> which & 1:
                        union |= usable[which, word]
                reached += _population(union)
            if reached * k < due * size and not uneven:
                uneven = step
    return step, uneven


@numba.njit
def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return a


@numba.njit
def _census(n: int, k: int) -> tuple[int, int, int, int]:
    """Graphs and failing graphs in sixths; the least diameters, n if there is none."""
    half = (n - 1) // 2
    common = np.zeros(half + 1, np.int64)
    for a in range(1, half + 1):
        common[a] = _gcd(a, n)
    graphs = failing = 0
    least = optimal = n
    offsets = np.zeros(k, np.int64)
    for first in range(1, half + 1):
        if n % first:
            continue
        images = (common == first).sum()
        for second in range(1, half + 1):
            if second == first or common[second] < first:
                continue
            for third in range(second + 1, half + 1) if k > 2 else range(second, second + 1):
                if k > 2 and (third == first or common[third] < first):
                    continue
                if _gcd(_gcd(first, second), third) != 1:
                    continue
                offsets[0], offsets[1], offsets[k - 1] = first, second, third
                alike = 0
                for which in range(k):
                    alike += common[offsets[which]] == first
                diameter, uneven = figures(n, offsets)
                graphs += images * SHARES // alike
                least = min(least, diameter)
                if uneven:
                    failing += images * SHARES // alike
                else:
                    optimal = min(optimal, diameter)
    return graphs, failing, least, optimal


def census(n: int, k: int) -> Count:
    """Count the graphs with n nodes and k offsets, 2 or 3, and those without an optimal breadth-first broadcast."""
    graphs, failing, least, optimal = _census(n, k)
    return Count(graphs // SHARES, failing // SHARES, least, optimal)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the census, by ranges of sizes."""
    parser = argparse.ArgumentParser(description="Count circulant graphs without optimal breadth-first broadcasts.")
    parser.add_argument("--offsets", type=int, default=3, choices=(2, 3), help="offsets of a graph (default: 3)")
    parser.add_argument("--up-to", type=int, default=60, metavar="N", help="largest number of nodes (default: 60)")
    parser.add_argument("--rows", type=int, default=20, metavar="SIZES", help="sizes in a row (default: 20)")
    options = parser.parse_args(arguments)
    if options.up_to <= 2 * options.offsets or options.rows < 1:
        parser.error(f"expected more than {2 * options.offsets} nodes, and at least one size in a row")

    total, first, longer = [0, 0], None, []
    for start in range(2 * options.offsets + 1, options.up_to + 1, options.rows):
        row, last = [0, 0], min(start + options.rows - 1, options.up_to)
        for n in range(start, last + 1):
            found = census(n, options.offsets)
            row = [row[0] + found.graphs, row[1] + found.failing]
            first = n if found.failing and first is None else first
            longer += [n] if found.least_optimal_diameter > found.least_diameter else []
        total = [total[0] + row[0], total[1] + row[1]]
        print(
            f"{start:4} to {last:4} nodes: {row[0]:12} graphs, {row[1]:9} fail, {100 * row[1] / row[0]:6.3f} %",
            flush=True,
        )
    smallest = f"; the smallest has {first} nodes" if first else ""
    print(f"in all {total[0]} graphs, {total[1]} fail{smallest}")
    print(f"sizes at which no graph of least diameter has an optimal broadcast: {longer or 'none'}")


if __name__ == "__main__":
    main()
