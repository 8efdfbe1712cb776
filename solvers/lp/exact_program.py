"""A linear program as the fractions that its floats stand for, and what can be proved about it by adding up."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ...errors import CertificateError
from ...support.arrays import IntArray
from .program import LinearProgram, named
from .rationals import ExactArray, IntegerMatrix, as_exact, common_denominator, exact, float_fraction

__all__ = ["ExactProgram"]


class ExactProgram:
    """Optimize ``costs @ x + offset`` with activities ``matrix @ x`` and bounded columns x, in exact rationals."""

    def __init__(self, program: LinearProgram) -> None:
        self.program = program
        self.sign = -1 if program.maximize else 1
        self.costs = as_exact(program.costs)
        self.offset = float_fraction(program.offset)
        self.rows = tuple(as_exact(side) for side in program.row_bounds)
        self.columns = tuple(as_exact(side) for side in program.column_bounds)
        self._matrix, self._factors = IntegerMatrix.from_floats(program.matrix)

    def activities(self, values: ExactArray) -> ExactArray:
        """Return ``matrix @ values``."""
        numerators, denominator = common_denominator(values.tolist())
        return _divided(self._matrix.times(numerators), self._factors * denominator)

    def reduced_costs(self, prices: ExactArray) -> ExactArray:
        """Return ``costs - matrix.T @ prices``, the prices of the columns' own bounds."""
        numerators, denominator = common_denominator(_divided(prices, self._factors).tolist())
        changes = self._matrix.transposed_times(numerators)
        return exact((self.costs - _divided(changes, np.full_like(changes, denominator))).tolist())

    def reached(self, values: ExactArray) -> Fraction:
        """Return the objective at a point, which shows that the best value is no worse."""
        self._check_within("variable", values, self.columns)
        self._check_within("constraint", self.activities(values), self.rows)
        fractional = exact([value.denominator > 1 for value in values]).astype(np.bool_)
        if len(broken := np.flatnonzero(self.program.whole & fractional)):
            raise CertificateError(f"{self._name('variable', broken)} of {self.program.name} is not whole")
        return _total(self.costs, values) + self.offset

    def bound(self, prices: ExactArray) -> Fraction:
        """Return what no point can beat, by weak duality."""
        bound = self.offset
        for kind, numbers, bounds in (
            ("constraint", prices, self.rows),
            ("variable", self.reduced_costs(prices), self.columns),
        ):
            if len(wrong := self.unsupported(numbers, bounds)):
                what = "reduced cost" if kind == "variable" else "price"
                raise CertificateError(
                    f"the {what} of {self._name(kind, wrong)} in {self.program.name} has the wrong sign, by "
                    f"{float(max(abs(numbers[wrong]))):.1e}"
                )
            bound += _total(numbers, np.where(self.sign * numbers > 0, *bounds))
        return bound

    def unsupported(self, prices: ExactArray, bounds: tuple[ExactArray, ...]) -> IntArray:
        """Find the prices whose bound is infinite: above zero those of lower bounds, where the sense is to minimise."""
        lower, upper = bounds
        signed = self.sign * prices
        return np.flatnonzero(((signed > 0) & (lower == -np.inf)) | ((signed < 0) & (upper == np.inf)))

    def _check_within(self, kind: str, numbers: ExactArray, bounds: tuple[ExactArray, ...]) -> None:
        lower, upper = bounds
        for side, short in (("below its lower bound", lower - numbers), ("above its upper bound", numbers - upper)):
            if len(wrong := np.flatnonzero(short > 0)):
                where = f"{self._name(kind, wrong)} of {self.program.name}"
                raise CertificateError(f"{where} is {float(max(short[wrong])):.1e} {side}")

    def _name(self, kind: str, wrong: IntArray) -> str:
        return named(self.program.variables if kind == "variable" else self.program.constraints, wrong)


def _divided(numerators: ExactArray, denominators: ExactArray) -> ExactArray:
    """Divide, and make each fraction that occurs only once."""
    pairs = list(zip(numerators.tolist(), denominators.tolist(), strict=True))
    table = {pair: Fraction(*pair) for pair in set(pairs)}
    return exact([table[pair] for pair in pairs])


def _total(numbers: ExactArray, factors: ExactArray) -> Fraction:
    used = np.flatnonzero(numbers != 0)
    return sum(numbers[used] * factors[used], Fraction(0))
