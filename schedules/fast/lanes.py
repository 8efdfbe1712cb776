"""Lanes: the NICs of servers in equal shares, and the parts of servers that send and receive one to one."""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

import numpy as np

from ...support.arrays import IntArray

Rates = Sequence[Sequence[Fraction]]
"""Of the NIC of each GPU, one row for each server; 0 where there is none."""


def lane_rate(nics: Rates) -> Fraction:
    """Return the largest rate that divides those of all NICs, which are 1 where none are given."""
    rates = [rate for row in nics for rate in row] or [Fraction(1)]
    scale = lcm(*(rate.denominator for rate in rates))
    return Fraction(gcd(*(int(rate * scale) for rate in rates)), scale)


def lane_counts(nics: Rates) -> IntArray:
    """Count the lanes of each rank; int64 (ranks,)."""
    unit = lane_rate(nics)
    return np.array([int(rate / unit) for row in nics for rate in row], dtype=np.int64)


def lanes_in_parts(counts: IntArray, homes: IntArray, width: int) -> tuple[IntArray, IntArray]:
    """Cut servers into parts of `width` lanes, in the order of ranks; the last part of a server may have fewer.

    Shapes: `counts` and `homes`, the lanes and the server of each rank, int64 (ranks,).  Returns the rank of each lane,
    (parts, width), with -1 for none, and the first part of each server, (servers + 1,).
    """
    ranks = np.repeat(np.arange(len(counts)), counts)
    before = np.searchsorted(homes[ranks], np.arange(homes[-1] + 2))
    firsts = np.append(0, np.cumsum(-(-np.diff(before) // width)))
    lanes = np.full(firsts[-1] * width, -1)
    lanes[np.arange(len(ranks)) + (firsts[:-1] * width - before[:-1])[homes[ranks]]] = ranks
    return lanes.reshape(-1, width), firsts
