"""Arrays of rational numbers: conversion of floats to simplest fractions, and exact sparse matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...support.arrays import FloatArray, IntArray

ExactArray = npt.NDArray[np.object_]  # fractions or Python integers; an absent bound stays an infinite float


@dataclass(frozen=True, eq=False)
class IntegerMatrix:
    """A sparse matrix of integers of any size, row by row."""

    starts: IntArray  # as in the compressed sparse row format
    columns: IntArray  # as in the compressed sparse row format
    entries: ExactArray  # integers
    width: int  # number of columns

    @classmethod
    def from_floats(cls, matrix: Any) -> tuple[IntegerMatrix, ExactArray]:
        """Convert a `scipy.sparse` matrix to fractions, and scale every row to integers; return it and the scales."""
        rows = matrix.tocsr()
        starts, columns = rows.indptr.astype(np.int64), rows.indices.astype(np.int64)
        factors = exact([1] * rows.shape[0])
        entries = as_exact(rows.data)
        denominators = exact([entry.denominator for entry in entries.tolist()])
        for row in np.unique(np.searchsorted(starts, np.flatnonzero(denominators != 1), side="right") - 1):
            factors[row] = math.lcm(*denominators[starts[row] : starts[row + 1]].tolist())
        repeated = np.repeat(factors, np.diff(starts))
        integers = [
            entry.numerator * (factor // entry.denominator) for entry, factor in zip(entries, repeated, strict=True)
        ]
        return cls(starts, columns, exact(integers), rows.shape[1]), factors

    def scaled(self, factors: ExactArray) -> IntegerMatrix:
        """Multiply every row by an integer of its own."""
        return replace(self, entries=self.entries * np.repeat(factors, np.diff(self.starts)))

    def times(self, vector: ExactArray) -> ExactArray:
        """Multiply by a vector of integers or fractions."""
        return _sums(self.entries * vector[self.columns], self.starts)

    def transposed_times(self, vector: ExactArray) -> ExactArray:
        """Multiply the transpose by a vector of integers or fractions."""
        products = self.entries * np.repeat(vector, np.diff(self.starts))
        order = np.argsort(self.columns, kind="stable")
        counts = np.bincount(self.columns, minlength=self.width)
        starts = np.concatenate([[0], np.cumsum(counts)])
        return _sums(products[order], starts)


def exact(values: Sequence[Any]) -> ExactArray:
    """Return Python numbers as an object array."""
    numbers = np.empty(len(values), dtype=object)
    numbers[:] = values
    return numbers


def as_exact(values: FloatArray) -> ExactArray:
    """Convert floats to fractions by `float_fraction`; infinities stay."""
    distinct, places = np.unique(values, return_inverse=True)
    table = [float_fraction(value) if math.isfinite(value) else value for value in distinct.tolist()]
    return exact(table)[places.reshape(np.shape(values))]


@lru_cache(maxsize=2**16)
def float_fraction(value: float) -> Fraction:
    """Return the simplest fraction that rounds to a float.

    It recovers the fraction that a model was stated in, if its denominator is moderate: two fractions with denominators
    up to q differ by at least ``1 / q**2``, so no other one with q below ``2**26 / sqrt(value)`` rounds to the same
    float.
    """
    if value.is_integer():
        return Fraction(int(value))
    size = abs(value)
    # Half-way points round to one of their neighbors; both have larger denominators than the float itself.
    ends = [(Fraction(size) + Fraction(math.nextafter(size, end))) / 2 for end in (0.0, math.inf)]
    return int(math.copysign(1, value)) * simplest_between(*ends)


def simplest_between(bottom: Fraction, top: Fraction) -> Fraction:
    """Return the fraction with the smallest denominator in a closed interval, by continued fractions."""
    if bottom <= 0 <= top:
        return Fraction(0)
    if top < 0:
        return -simplest_between(-top, -bottom)
    # Convergents: the value is (old + z new) of numerators over that of denominators, z in the remaining interval.
    low, low_under, high, high_under = bottom.numerator, bottom.denominator, top.numerator, top.denominator
    above, above_before, below, below_before = 1, 0, 0, 1
    while True:
        integer, fraction = divmod(low, low_under)
        last = integer if fraction == 0 else integer + 1
        if last * high_under <= high:
            return Fraction(last * above + above_before, last * below + below_before)
        above, above_before = integer * above + above_before, above
        below, below_before = integer * below + below_before, below
        low, low_under, high, high_under = high_under, high - integer * high_under, low_under, fraction


def common_denominator(fractions: Sequence[Any]) -> tuple[ExactArray, int]:
    """Return numerators and the least common denominator."""
    denominator = math.lcm(*{fraction.denominator for fraction in fractions})
    return exact([fraction.numerator * (denominator // fraction.denominator) for fraction in fractions]), denominator


def divided(numerators: ExactArray, denominators: ExactArray) -> ExactArray:
    """Divide element by element, building equal fractions once."""
    pairs = list(zip(numerators.tolist(), denominators.tolist(), strict=True))
    table = {pair: Fraction(*pair) for pair in set(pairs)}
    return exact([table[pair] for pair in pairs])


def _sums(products: ExactArray, starts: IntArray) -> ExactArray:
    """Sum the products from each start to the next."""
    sums = np.zeros(len(starts) - 1, dtype=object)
    filled = starts[1:] > starts[:-1]
    if filled.any():
        sums[filled] = np.add.reduceat(products, starts[:-1][filled])
    return sums
