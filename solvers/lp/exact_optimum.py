"""From a basis to an exact optimum: HiGHS finds which bounds hold at the optimum, and rationals do the rest."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ...errors import CertificateError, NoAnswerError
from ...support import progress
from ...support.arrays import IntArray
from .basis import BASIC, UPPER, Basis, Named
from .exact_program import ExactProgram
from .program import LinearProgram
from .rational_system import RationalSystem
from .rationals import ExactArray, exact

__all__ = ["ExactAnswer", "exact_answer"]


@dataclass(frozen=True, eq=False)
class ExactAnswer:
    """An optimum without tolerances, and the prices that prove it.

    Attributes
    ----------
    objective : Fraction
        The best value of the objective.
    """

    objective: Fraction
    _program: ExactProgram
    _point: ExactArray
    _prices: ExactArray

    def __repr__(self) -> str:
        """Tell what is answered, and the objective."""
        return f"<ExactAnswer to {self._program.program.name}: objective {self.objective}>"

    @property
    def values(self) -> Named:
        """Fractions by name of the variable block."""
        return Named("variable", self._program.program.variables, self._point)

    @property
    def duals(self) -> Named:
        """Fractions by name of the constraint block: prices as in `Solution.duals`."""
        return Named("constraint", self._program.program.constraints, self._prices)

    @property
    def reduced_costs(self) -> Named:
        """Prices of the variables' own bounds, by name of the variable block."""
        return Named("variable", self._program.program.variables, self._program.reduced_costs(self._prices))

    def verify(self) -> None:
        """Check by adding up that the values are allowed, and that the prices allow none better.

        Raises
        ------
        CertificateError
            Naming the first constraint, variable or figure that is wrong.
        """
        reached, bound = self._program.reached(self._point), self._program.bound(self._prices)
        if not reached == bound == self.objective:
            raise CertificateError(
                f"the exact answer to {self._program.program.name} claims {self.objective}, but its primal values "
                f"reach {reached} and its dual values prove {bound}"
            )


def exact_answer(program: LinearProgram, basis: Basis | None) -> ExactAnswer:
    """Solve a linear program exactly, given which bounds hold at its optimum."""
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
    point, prices = basic_solution(rational, basis)
    if point is None or prices is None:
        raise NoAnswerError(f"the basis of {program.name} is singular, or too much for exact arithmetic")
    loose = f"the basis of {program.name} is optimal only within tolerances"
    try:
        reached, bound = rational.reached(point), rational.bound(prices)
    except CertificateError as error:
        raise NoAnswerError(f"{loose}: {error}") from error
    if reached != bound:
        raise NoAnswerError(
            f"{loose}: its primal values reach {float(reached)!r}, but its dual values prove {float(bound)!r}"
        )
    return ExactAnswer(reached, rational, point, prices)


def basic_solution(rational: ExactProgram, basis: Basis) -> tuple[ExactArray | None, ExactArray | None]:
    """Return the values and the prices that belong to a basis, optimal or not.

    With B the basic columns and T the rows that rest on a bound, the values of B solve ``matrix[T, B] x = rest`` and
    the prices of T solve ``matrix[T, B].T y = costs[B]``.
    """
    columns, rows = basis.columns, basis.rows
    chosen, tight = np.flatnonzero(columns == BASIC), np.flatnonzero(rows != BASIC)
    if len(chosen) != len(tight):
        return None, None
    system = RationalSystem(rational.program.matrix.tocsr()[tight].tocsc()[:, chosen])
    point = _resting(columns, rational.columns)
    rest = (_resting(rows, rational.rows) - rational.activities(point))[tight]
    found, tight_prices = system.solve(rest), system.solve_transposed(rational.costs[chosen])
    if found is None or tight_prices is None:
        return None, None
    point[chosen] = found
    prices = exact([Fraction(0)] * len(rows))
    prices[tight] = tight_prices
    return point, prices


def _resting(states: IntArray, bounds: tuple[ExactArray, ...]) -> ExactArray:
    """Return the bound that each one rests on, and 0 for what is basic or free."""
    lower, upper = bounds
    places = np.where((states == UPPER) | (lower == -np.inf), upper, lower)
    places[(states == BASIC) | (abs(places) == np.inf)] = Fraction(0)
    return places
