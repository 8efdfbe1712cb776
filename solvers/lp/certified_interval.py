"""Certified interval around the optimum of a linear program, from exact primal points and exact dual values."""

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...errors import CertificateError
from ...support.arrays import FloatArray, IntArray
from .exact_optimum import ExactProgram, basic_solution
from .program import Evidence
from .rationals import ExactArray, as_exact, exact, simplest_between

ROUNDING_TOLERANCE = 1e-9  # rounding tolerance, relative to the largest number of its kind
MAX_REPAIR_ROUNDS = 20


class Interval(NamedTuple):
    """Certified interval from `lower` to `upper` around the optimal value; None where nothing is proved on a side."""

    lower: Fraction | None
    upper: Fraction | None


def certified_interval(evidence: Evidence) -> Interval:
    """Enclose the optimum between the value of a feasible point and a dual bound."""
    program, values, duals, _, basis = evidence
    rational = ExactProgram(program)
    point, exact_duals = (None, None) if basis is None else basic_solution(rational, basis)
    primal_bound = _first(rational.primal_bound, (point, *_rounded_points(rational, values)))
    bound = _first(rational.bound, (exact_duals, *_repaired_duals(rational, duals)))
    return Interval(bound, primal_bound) if rational.sign > 0 else Interval(primal_bound, bound)


def _first(prove: Callable[[ExactArray], Fraction], candidates: Iterable[ExactArray | None]) -> Fraction | None:
    """Return what the first valid candidate proves, or None."""
    for candidate in candidates:
        if candidate is not None:
            try:
                return prove(candidate)
            except CertificateError:
                continue
    return None


def _rounded_points(rational: ExactProgram, values: FloatArray) -> Iterator[ExactArray]:
    """Round every value to the nearest bound, integer or simple fraction."""
    if not len(values):
        return
    rounded = _simplified(values)
    integral = rational.program.integral
    rounded[integral] = exact([Fraction(round(value)) for value in values[integral].tolist()])
    lower, upper = rational.columns
    yield np.minimum(np.maximum(rounded, lower), upper)


def _repaired_duals(rational: ExactProgram, duals: FloatArray) -> Iterator[ExactArray]:
    """Round dual values, and repair reduced costs of the wrong sign in rows with few entries, in several rounds."""
    if not len(duals) or rational.program.integral.any():
        return
    repaired = _simplified(duals)
    repaired[rational.wrong_signs(repaired, rational.rows)] = Fraction(0)
    matrix = rational.program.matrix
    entries = np.bincount(matrix.indices, minlength=matrix.shape[0])
    lower, upper = rational.rows
    for _ in range(MAX_REPAIR_ROUNDS):
        reduced, before = rational.reduced_costs(repaired), repaired.copy()
        faulty = rational.wrong_signs(reduced, rational.columns)
        if not len(faulty):
            yield repaired
            return
        for column in faulty:
            rows, numbers = _entries(matrix, column)
            changes = reduced[column] / numbers
            moved = rational.sign * (before[rows] + changes)
            admissible = ((moved <= 0) | (lower[rows] > -np.inf)) & ((moved >= 0) | (upper[rows] < np.inf))
            if not admissible.any():
                return
            best = min(np.flatnonzero(admissible), key=lambda place: entries[rows[place]])
            row, change = rows[best], changes[best]
            # The change that one column needs may suffice for others.
            if abs(change) > abs(repaired[row] - before[row]):
                repaired[row] = before[row] + change


def _entries(matrix: Any, column: int) -> tuple[IntArray, ExactArray]:
    here = np.arange(matrix.indptr[column], matrix.indptr[column + 1])
    here = here[matrix.data[here] != 0]
    return matrix.indices[here], as_exact(matrix.data[here])


def _simplified(values: FloatArray) -> ExactArray:
    tolerance = Fraction(ROUNDING_TOLERANCE * float(np.max(np.abs(values), initial=0.0)))
    distinct, places = np.unique(values, return_inverse=True)
    exactly = [Fraction(value) for value in distinct.tolist()]
    return exact([simplest_between(value - tolerance, value + tolerance) for value in exactly])[places]
