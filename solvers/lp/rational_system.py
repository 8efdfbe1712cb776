"""Exact rational solution of square sparse linear systems by numeric-symbolic lifting.

A floating-point LU factorization gives the digits of the solution a few at a time, each time from an exact residual
(Wan, "An algorithm to solve integer linear systems exactly using numerical methods", 2006).  Rational reconstruction
yields fractions as soon as there are enough digits, and the result is checked in the equations.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ...support.arrays import FloatArray
from .rationals import ExactArray, IntegerMatrix, common_denominator, divided, exact, simplest_between

STEP_BITS = 30  # new digits per solve in floats, at most
MIN_STEP_BITS = 6  # if floats give fewer digits, the matrix is numerically singular
MAX_BITS = 60_000  # longer fractions take minutes and are of no use
DENSE_SIZE = 600  # largest size for a dense exact factorization where floats fail


class RationalSystem:
    """A square matrix, factorized once."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = matrix.tocsc()
        self._factors = _factorized(self._matrix)

    def solve(self, sides: ExactArray) -> ExactArray | None:
        """Solve ``matrix @ x = sides``; None if the matrix is singular or too ill-conditioned."""
        return self._solution(self._matrix, sides, "N")

    def solve_transposed(self, sides: ExactArray) -> ExactArray | None:
        """Solve ``matrix.T @ x = sides``; as `solve`."""
        return self._solution(self._matrix.T, sides, "T")

    def _solution(self, matrix: Any, sides: ExactArray, mode: str) -> ExactArray | None:
        if not len(sides):
            return sides
        whole, factors = IntegerMatrix.from_floats(matrix)
        # Row by row, since a common denominator of all sides may be very large.
        further = exact([side.denominator for side in factors * sides])
        whole, factors = whole.scaled(further), factors * further
        targets = exact([int(target) for target in factors * sides])
        found = None
        if self._factors is not None:
            found = _Lifting(whole, targets, lambda sizes: self._factors.solve(sizes, mode), factors).solution()
        if found is None and len(sides) <= DENSE_SIZE:
            found = _dense_solution(whole, targets)
        return None if found is None else divided(found[0], np.full_like(found[0], found[1]))


class _Lifting:
    """One right-hand side: x is about ``digits / 2**exponent``, and ``residual = 2**exponent targets - A digits``."""

    def __init__(self, matrix: IntegerMatrix, targets: ExactArray, solve: Any, factors: ExactArray) -> None:
        self.matrix, self.targets, self._solve = matrix, targets, solve
        self._scales = factors.astype(np.float64)
        self.digits, self.residual, self.exponent = targets * 0, targets, 0
        self._limit = _bits_needed(matrix, targets)

    def solution(self) -> tuple[ExactArray, int] | None:
        """Numerators and their denominator."""
        bits, known_at_last_try = STEP_BITS, 0.0
        correction, error = self._correction()
        while np.isfinite(error):
            # The error is the correction itself, in units of the last digit.
            known = self.exponent - math.log2(max(error, 1.0))
            if error == 0 or known >= 2 * known_at_last_try + STEP_BITS:
                if found := self._fractions(2 * math.ceil(error) + 1):
                    return found
                known_at_last_try = known
            if known > self._limit:
                return None
            before = error
            self._append(correction, bits)
            correction, error = self._correction()
            gained = bits + math.log2(max(before, 1.0)) - math.log2(max(error, 1.0))
            if gained < MIN_STEP_BITS:
                return None
            bits = min(STEP_BITS, max(MIN_STEP_BITS, int(gained)))
        return None

    def _correction(self) -> tuple[FloatArray, float]:
        """Solve for the residual in floats; return the correction and its largest entry."""
        correction = self._solve(self.residual.astype(np.float64) / self._scales)
        return correction, float(np.max(np.abs(correction)))

    def _append(self, correction: FloatArray, bits: int) -> None:
        new = exact([int(number) for number in np.rint(np.ldexp(correction, bits)).tolist()])
        self.digits = self.digits * 2**bits + new
        self.residual = self.residual * 2**bits - self.matrix.times(new)
        self.exponent += bits

    def _fractions(self, error: int) -> tuple[ExactArray, int] | None:
        """Reconstruct a common denominator up to the error, and check the fractions in the equations."""
        unit, denominator = 2**self.exponent, 1
        rest = np.arange(len(self.digits))
        while len(rest):
            scaled = self.digits[rest] * denominator
            away = abs(scaled - (scaled + unit // 2) // unit * unit)
            rest = rest[away > denominator * error]
            if len(rest):
                digits = int(self.digits[rest[0]]) * denominator
                slack = denominator * error
                denominator *= simplest_between(
                    Fraction(digits - slack, unit), Fraction(digits + slack, unit)
                ).denominator
            if 2 * denominator**2 * error > unit:
                # Too few digits to determine this fraction.
                return None
        numerators = (self.digits * denominator + unit // 2) // unit
        if (self.matrix.times(numerators) == self.targets * denominator).all():
            return numerators, denominator
        return None


def _factorized(matrix: Any) -> Any:
    """Factorize in floats, or return None if that fails."""
    from scipy.sparse.linalg import splu

    try:
        return splu(matrix)
    except RuntimeError:
        return None


def _bits_needed(matrix: IntegerMatrix, targets: ExactArray) -> float:
    """Bound the bits that determine the solution, by Cramer's rule and Hadamard's bound on determinants."""
    rows = np.split(matrix.entries, matrix.starts[1:-1])
    determinant = sum(int((row**2).sum()).bit_length() for row in rows) / 2
    needed = 2 * determinant + max(int(abs(target)).bit_length() for target in targets) + 2 * STEP_BITS
    return min(needed, MAX_BITS)


def _dense_solution(matrix: IntegerMatrix, targets: ExactArray) -> tuple[ExactArray, int] | None:
    """Solve with FLINT, which is exact but dense."""
    import flint

    size = len(targets)
    dense = np.zeros((size, size), dtype=object)
    dense[np.repeat(np.arange(size), np.diff(matrix.starts)), matrix.columns] = matrix.entries
    try:
        found = flint.fmpz_mat(dense.tolist()).solve(flint.fmpz_mat([[target] for target in targets.tolist()]))
    except ZeroDivisionError:
        return None
    return common_denominator([Fraction(int(entry.p), int(entry.q)) for entry in found.entries()])
