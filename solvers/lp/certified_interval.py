"""What is certain of an optimum where no basis gives it away: exact points and exact prices on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...errors import CertificateError
from ...support.arrays import FloatArray, IntArray
from .basis import Evidence
from .exact_optimum import basic_solution
from .exact_program import ExactProgram
from .rationals import ExactArray, as_exact, exact, simplest_between

__all__ = ["Interval", "certified_interval"]

ROUNDING = 1e-9
"""How far a number may be rounded, relative to the largest of its kind."""

REPAIRS = 20


class Interval(NamedTuple):
    """Where the best value of an objective lies, as proved in rationals.

    Attributes
    ----------
    lower, upper : Fraction or None
        None where nothing is proved on this side.
    """

    lower: Fraction | None
    upper: Fraction | None


def certified_interval(evidence: Evidence) -> Interval:
    """Enclose the optimum between a point that is allowed and a bound that no point can beat."""
    program, values, duals, _, basis = evidence
    rational = ExactProgram(program)
    point, prices = (None, None) if basis is None else basic_solution(rational, basis)
    reached = _first(rational.reached, (point, *_rounded_points(rational, values)))
    bound = _first(rational.bound, (prices, *_repaired_prices(rational, duals)))
    return Interval(bound, reached) if rational.sign > 0 else Interval(reached, bound)


def _first(prove: Callable[[ExactArray], Fraction], candidates: Iterable[ExactArray | None]) -> Fraction | None:
    """What the first candidate proves that proves anything."""
    for candidate in candidates:
        if candidate is not None:
            try:
                return prove(candidate)
            except CertificateError:
                continue
    return None


def _rounded_points(rational: ExactProgram, values: FloatArray) -> Iterator[ExactArray]:
    """Move every value onto the bound, the whole number or the simple fraction next to it."""
    if not len(values):
        return
    rounded = _simplified(values)
    whole = rational.program.whole
    rounded[whole] = exact([Fraction(round(value)) for value in values[whole].tolist()])
    lower, upper = rational.columns
    yield np.minimum(np.maximum(rounded, lower), upper)


def _repaired_prices(rational: ExactProgram, duals: FloatArray) -> Iterator[ExactArray]:
    """Round prices, and make up for what that spoils with the prices of rows that can bear it.

    A reduced cost of the wrong sign where the column has no bound is mended at the cheapest place: in the row with
    the fewest entries whose price may move that way.  This can spoil others, so there are several rounds.
    """
    if not len(duals) or rational.program.whole.any():
        return
    prices = _simplified(duals)
    prices[rational.unsupported(prices, rational.rows)] = Fraction(0)
    matrix = rational.program.matrix
    entries = np.bincount(matrix.indices, minlength=matrix.shape[0])
    lower, upper = rational.rows
    for _ in range(REPAIRS):
        reduced, before = rational.reduced_costs(prices), prices.copy()
        wrong = rational.unsupported(reduced, rational.columns)
        if not len(wrong):
            yield prices
            return
        for column in wrong:
            rows, numbers = _entries(matrix, column)
            changes = reduced[column] / numbers
            moved = rational.sign * (before[rows] + changes)
            able = ((moved <= 0) | (lower[rows] > -np.inf)) & ((moved >= 0) | (upper[rows] < np.inf))
            if not able.any():
                return
            best = min(np.flatnonzero(able), key=lambda place: entries[rows[place]])
            row, change = rows[best], changes[best]
            # What one column needs can be enough for others too.
            if abs(change) > abs(prices[row] - before[row]):
                prices[row] = before[row] + change


def _entries(matrix: Any, column: int) -> tuple[IntArray, ExactArray]:
    here = np.arange(matrix.indptr[column], matrix.indptr[column + 1])
    here = here[matrix.data[here] != 0]
    return matrix.indices[here], as_exact(matrix.data[here])


def _simplified(values: FloatArray) -> ExactArray:
    room = Fraction(ROUNDING * float(np.max(np.abs(values), initial=0.0)))
    distinct, places = np.unique(values, return_inverse=True)
    exactly = [Fraction(value) for value in distinct.tolist()]
    return exact([simplest_between(value - room, value + room) for value in exactly])[places]
