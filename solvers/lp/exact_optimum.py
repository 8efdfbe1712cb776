"""Exact rational optimum of a linear program from an optimal basis.

HiGHS determines which bounds are active at the optimum; two rational linear systems give the primal and dual solution.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...errors import CertificateError, NoAnswerError
from ...support import progress
from ...support.arrays import IntArray
from ...support.linear_program import LinearProgram
from .basis import BASIC, UPPER, Basis, Named
from .program import named
from .rational_system import RationalSystem
from .rationals import ExactArray, IntegerMatrix, as_exact, common_denominator, divided, exact, float_fraction


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
        return divided(self._matrix.times(numerators), self._factors * denominator)

    def reduced_costs(self, duals: ExactArray) -> ExactArray:
        """Return ``costs - matrix.T @ duals``."""
        numerators, denominator = common_denominator(divided(duals, self._factors).tolist())
        changes = self._matrix.transposed_times(numerators)
        return exact((self.costs - divided(changes, np.full_like(changes, denominator))).tolist())

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
                what = "reduced cost" if kind == "variable" else "dual value"
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


def _total(numbers: ExactArray, factors: ExactArray) -> Fraction:
    used = np.flatnonzero(numbers != 0)
    return sum(numbers[used] * factors[used], Fraction(0))


@dataclass(frozen=True, eq=False)
class ExactAnswer:
    """An exact optimum, whose value is `objective`, and the dual values that prove it."""

    objective: Fraction
    _program: ExactProgram
    _point: ExactArray
    _duals: ExactArray

    def __repr__(self) -> str:
        """Name the program and the objective."""
        return f"<ExactAnswer to {self._program.program.name}: objective {self.objective}>"

    @property
    def values(self) -> Named:
        """Fractions by name of the variable block."""
        return Named("variable", self._program.program.variables, self._point)

    @property
    def duals(self) -> Named:
        """Dual values as fractions, by name of the constraint block, as in `Solution.duals`."""
        return Named("constraint", self._program.program.constraints, self._duals)

    @property
    def reduced_costs(self) -> Named:
        """Reduced costs as fractions, by name of the variable block."""
        return Named("variable", self._program.program.variables, self._program.reduced_costs(self._duals))

    def verify(self) -> None:
        """Check that the values are feasible and that the dual values prove them optimal, by weak duality.

        Raises `CertificateError` naming the first constraint, variable or figure that is wrong.
        """
        primal_bound, bound = self._program.primal_bound(self._point), self._program.bound(self._duals)
        if not primal_bound == bound == self.objective:
            raise CertificateError(
                f"the exact answer to {self._program.program.name} claims {self.objective}, but its primal values "
                f"reach {primal_bound} and its dual values prove {bound}"
            )


def exact_answer(program: LinearProgram, basis: Basis | None) -> ExactAnswer:
    """Solve a linear program exactly from an optimal basis."""
    if program.whole.any():
        raise NoAnswerError(
            f"{program.name} has whole variables, and branch and bound proves nothing exactly; Solution.interval has "
            "the exact value of its answer"
        )
    if basis is None:
        raise NoAnswerError(
            f"{program.name} was solved without a basis, as interior point without crossover and PDLP do; choose "
            "Algorithm.SIMPLEX or Algorithm.IPM"
        )
    with progress.status() as say:
        say("exact answer")
        return _of_basis(program, basis)


def _of_basis(program: LinearProgram, basis: Basis) -> ExactAnswer:
    rational = ExactProgram(program)
    point, duals = basic_solution(rational, basis)
    if point is None or duals is None:
        raise NoAnswerError(f"the basis of {program.name} is singular, or too much for exact arithmetic")
    loose = f"the basis of {program.name} is optimal only within tolerances"
    try:
        primal_bound, bound = rational.primal_bound(point), rational.bound(duals)
    except CertificateError as error:
        raise NoAnswerError(f"{loose}: {error}") from error
    if primal_bound != bound:
        raise NoAnswerError(
            f"{loose}: its primal values reach {float(primal_bound)!r}, but its dual values prove {float(bound)!r}"
        )
    return ExactAnswer(primal_bound, rational, point, duals)


def basic_solution(rational: ExactProgram, basis: Basis) -> tuple[ExactArray | None, ExactArray | None]:
    """Return the basic primal and dual solution of a basis, optimal or not."""
    columns, rows = basis.columns, basis.rows
    chosen, tight = np.flatnonzero(columns == BASIC), np.flatnonzero(rows != BASIC)
    if len(chosen) != len(tight):
        return None, None
    system = RationalSystem(rational.program.matrix.tocsr()[tight].tocsc()[:, chosen])
    point = _nonbasic_values(columns, rational.columns)
    rest = (_nonbasic_values(rows, rational.rows) - rational.activities(point))[tight]
    found, tight_duals = system.solve(rest), system.solve_transposed(rational.costs[chosen])
    if found is None or tight_duals is None:
        return None, None
    point[chosen] = found
    duals = exact([Fraction(0)] * len(rows))
    duals[tight] = tight_duals
    return point, duals


def _nonbasic_values(states: IntArray, bounds: tuple[ExactArray, ...]) -> ExactArray:
    """Return the bound at which each nonbasic one is, and 0 for basic or free ones."""
    lower, upper = bounds
    places = np.where((states == UPPER) | (lower == -np.inf), upper, lower)
    places[(states == BASIC) | (abs(places) == np.inf)] = Fraction(0)
    return places
