"""Linear program in exact rationals: objective of feasible points, and bounds by weak duality."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ...errors import CertificateError
from ...support.arrays import IntArray
from .program import LinearProgram, named
from .rationals import ExactArray, IntegerMatrix, as_exact, common_denominator, exact, float_fraction


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

    def reduced_costs(self, duals: ExactArray) -> ExactArray:
        """Return ``costs - matrix.T @ duals``."""
        numerators, denominator = common_denominator(_divided(duals, self._factors).tolist())
        changes = self._matrix.transposed_times(numerators)
        return exact((self.costs - _divided(changes, np.full_like(changes, denominator))).tolist())

    def primal_bound(self, values: ExactArray) -> Fraction:
        """Return the objective at a feasible point; `CertificateError` if it is infeasible."""
        self._check_within("variable", values, self.columns)
        self._check_within("constraint", self.activities(values), self.rows)
        fractional = exact([value.denominator > 1 for value in values]).astype(np.bool_)
        if len(broken := np.flatnonzero(self.program.whole & fractional)):
            raise CertificateError(f"{self._name('variable', broken)} of {self.program.name} is not whole")
        return _total(self.costs, values) + self.offset

    def bound(self, duals: ExactArray) -> Fraction:
        """Return the bound that dual values prove by weak duality; `CertificateError` if a sign is wrong."""
        bound = self.offset
        for kind, numbers, bounds in (
            ("constraint", duals, self.rows),
            ("variable", self.reduced_costs(duals), self.columns),
        ):
            if len(wrong := self.wrong_signs(numbers, bounds)):
                what = "reduced cost" if kind == "variable" else "price"
                raise CertificateError(
                    f"the {what} of {self._name(kind, wrong)} in {self.program.name} has the wrong sign, by "
                    f"{float(max(abs(numbers[wrong]))):.1e}"
                )
            bound += _total(numbers, np.where(self.sign * numbers > 0, *bounds))
        return bound

    def wrong_signs(self, duals: ExactArray, bounds: tuple[ExactArray, ...]) -> IntArray:
        """Find dual values whose bound is infinite: of positive ones the lower bound, in a minimization."""
        lower, upper = bounds
        signed = self.sign * duals
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
    """Divide element by element, building equal fractions once."""
    pairs = list(zip(numerators.tolist(), denominators.tolist(), strict=True))
    table = {pair: Fraction(*pair) for pair in set(pairs)}
    return exact([table[pair] for pair in pairs])


def _total(numbers: ExactArray, factors: ExactArray) -> Fraction:
    used = np.flatnonzero(numbers != 0)
    return sum(numbers[used] * factors[used], Fraction(0))
