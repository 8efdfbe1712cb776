"""Exact rational optimum of a linear program from an optimal basis.

The basis gives two rational linear systems.  A floating-point LU factorization gives the digits of a solution a few at
a time, each time from an exact residual (Wan, 2006), rational reconstruction the fractions, which are checked in the
equations.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ...errors import CertificateError, NoAnswerError
from ...support import progress
from ...support.arrays import FloatArray, IntArray
from ...support.linear_program import LinearProgram
from .program import BASIC, UPPER, Basis, Evidence, Named, named
from .rationals import (
    ExactArray,
    IntegerMatrix,
    as_exact,
    common_denominator,
    divided,
    exact,
    float_fraction,
    simplest_between,
)

STEP_BITS = 30  # new digits per solve in floats, at most
MIN_STEP_BITS = 6  # if floats give fewer digits, the matrix is numerically singular
MAX_BITS = 60_000  # longer fractions take minutes and are of no use
DENSE_SIZE = 600  # largest size for a dense exact factorization where floats fail


class RationalSystem:
    """A square matrix, factorized once."""

    def __init__(self, matrix: Any) -> None:
        from scipy.sparse.linalg import splu

        self._matrix, self._factors = matrix.tocsc(), None
        with suppress(RuntimeError):
            self._factors = splu(self._matrix)

    def solve(self, sides: ExactArray) -> ExactArray | None:
        """Solve ``matrix @ x = sides``; None if the matrix is singular or too ill-conditioned."""
        return self._solution(self._matrix, sides, "N")

    def solve_transposed(self, sides: ExactArray) -> ExactArray | None:
        """Solve ``matrix.T @ x = sides``; as `solve`."""
        return self._solution(self._matrix.T, sides, "T")

    def _solution(self, matrix: Any, sides: ExactArray, mode: str) -> ExactArray | None:
        if not len(sides):
            return sides
        solution, factors = IntegerMatrix.from_floats(matrix)
        # Row by row, since a common denominator of all sides may be very large.
        lifted = exact([side.denominator for side in factors * sides])
        solution, factors = solution.scaled(lifted), factors * lifted
        targets = exact([int(target) for target in factors * sides])
        candidate = None
        if self._factors is not None:
            candidate = _Lifting(solution, targets, lambda sizes: self._factors.solve(sizes, mode), factors).solution()
        if candidate is None and len(sides) <= DENSE_SIZE:
            candidate = _dense_solution(solution, targets)
        return None if candidate is None else divided(candidate[0], np.full_like(candidate[0], candidate[1]))


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
            digits = self.exponent - math.log2(max(error, 1.0))
            if error == 0 or digits >= 2 * known_at_last_try + STEP_BITS:
                if candidate := self._fractions(2 * math.ceil(error) + 1):
                    return candidate
                known_at_last_try = digits
            if digits > self._limit:
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
        remainder = np.arange(len(self.digits))
        while len(remainder):
            scaled = self.digits[remainder] * denominator
            away = abs(scaled - (scaled + unit // 2) // unit * unit)
            remainder = remainder[away > denominator * error]
            if len(remainder):
                digits = int(self.digits[remainder[0]]) * denominator
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


def _bits_needed(matrix: IntegerMatrix, targets: ExactArray) -> float:
    """Bound the bits that determine the solution, by Cramer's rule and Hadamard's bound on determinants."""
    rows = np.split(matrix.entries, matrix.starts[1:-1])
    determinant = sum(int((row**2).sum()).bit_length() for row in rows) / 2
    bits = 2 * determinant + max(int(abs(target)).bit_length() for target in targets) + 2 * STEP_BITS
    return min(bits, MAX_BITS)


def _dense_solution(matrix: IntegerMatrix, targets: ExactArray) -> tuple[ExactArray, int] | None:
    """Solve with FLINT, which is exact but dense."""
    import flint

    size = len(targets)
    dense = np.zeros((size, size), dtype=object)
    dense[np.repeat(np.arange(size), np.diff(matrix.starts)), matrix.columns] = matrix.entries
    try:
        solution = flint.fmpz_mat(dense.tolist()).solve(flint.fmpz_mat([[target] for target in targets.tolist()]))
    except ZeroDivisionError:
        return None
    return common_denominator([Fraction(int(entry.p), int(entry.q)) for entry in solution.entries()])


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
        if len(broken := np.flatnonzero(self.program.integral & fractional)):
            raise CertificateError(f"{self._name('variable', broken)} of {self.program.name} is not whole")
        return _total(self.costs, values) + self.offset

    def bound(self, duals: ExactArray) -> Fraction:
        """Return the bound that dual values prove by weak duality; `CertificateError` if a sign is wrong."""
        bound = self.offset
        for kind, numbers, bounds in (
            ("constraint", duals, self.rows),
            ("variable", self.reduced_costs(duals), self.columns),
        ):
            if len(faulty := self.wrong_signs(numbers, bounds)):
                what = "reduced cost" if kind == "variable" else "dual value"
                raise CertificateError(
                    f"the {what} of {self._name(kind, faulty)} in {self.program.name} has the wrong sign, by "
                    f"{float(max(abs(numbers[faulty]))):.1e}"
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
            if len(faulty := np.flatnonzero(short > 0)):
                where = f"{self._name(kind, faulty)} of {self.program.name}"
                raise CertificateError(f"{where} is {float(max(short[faulty])):.1e} {side}")

    def _name(self, kind: str, faulty: IntArray) -> str:
        return named(self.program.variables if kind == "variable" else self.program.constraints, faulty)


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
    if program.integral.any():
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
    basic, tight = np.flatnonzero(columns == BASIC), np.flatnonzero(rows != BASIC)
    if len(basic) != len(tight):
        return None, None
    system = RationalSystem(rational.program.matrix.tocsr()[tight].tocsc()[:, basic])
    point = _nonbasic_values(columns, rational.columns)
    remaining = (_nonbasic_values(rows, rational.rows) - rational.activities(point))[tight]
    values, tight_duals = system.solve(remaining), system.solve_transposed(rational.costs[basic])
    if values is None or tight_duals is None:
        return None, None
    point[basic] = values
    duals = exact([Fraction(0)] * len(rows))
    duals[tight] = tight_duals
    return point, duals


def _nonbasic_values(states: IntArray, bounds: tuple[ExactArray, ...]) -> ExactArray:
    """Return the bound at which each nonbasic one is, and 0 for basic or free ones."""
    lower, upper = bounds
    places = np.where((states == UPPER) | (lower == -np.inf), upper, lower)
    places[(states == BASIC) | (abs(places) == np.inf)] = Fraction(0)
    return places


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
