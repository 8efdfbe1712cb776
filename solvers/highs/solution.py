"""What a solve gives back: how it ended, and the numbers that it found, reachable only if there are any."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from ...errors import NoAnswerError
from ..lp.basis import Evidence, Named

if TYPE_CHECKING:
    from ..lp.certified_interval import Interval
    from ..lp.exact_optimum import ExactAnswer

__all__ = ["DualStatus", "PrimalStatus", "Solution", "Status", "Termination"]


class Termination(Enum):
    """Why the solver stopped."""

    OPTIMAL = "optimal"
    """A best answer was found, within tolerances: it may break constraints, and its prices may be off, by as much.

    With numbers of very different sizes, that can be a model which is infeasible or unbounded by less than the
    tolerances: `Solution.exact` and `Solution.interval` have none.
    """
    INFEASIBLE = "infeasible"
    """No point meets all constraints; of a linear program, HiGHS's word is checked with a ray, in floats."""
    UNBOUNDED = "unbounded"
    """The objective improves without end; checked likewise."""
    INFEASIBLE_OR_UNBOUNDED = "infeasible or unbounded"
    """There is no best answer, and the solver did not find out for which reason."""
    TIME_LIMIT = "time limit"
    """`HighsOptions.time_limit` ran out."""
    OTHER_LIMIT = "other limit"
    """Iterations or memory."""
    INTERRUPTED = "interrupted"
    """The listener in `HighsOptions.progress` said so."""
    UNKNOWN = "unknown"
    """The solver gave up, usually for numerical reasons."""


WITHOUT_BEST_VALUE = (Termination.INFEASIBLE, Termination.UNBOUNDED, Termination.INFEASIBLE_OR_UNBOUNDED)


class PrimalStatus(Enum):
    """What is known of the values of the variables."""

    NONE = "none"
    """There are none, or the model is infeasible or unbounded and they mean nothing."""
    INFEASIBLE = "infeasible"
    """The solver stopped at a point that breaks a constraint."""
    FEASIBLE = "feasible"
    """They meet every constraint within tolerances."""


class DualStatus(Enum):
    """What is known of the prices of the constraints."""

    NONE = "none"
    """There are none, as for every integer program and every model that is infeasible or unbounded."""
    INFEASIBLE = "infeasible"
    """The solver stopped at prices that prove nothing."""
    FEASIBLE = "feasible"
    """They prove a bound on the objective, within tolerances."""


class Status(NamedTuple):
    """How a solve ended.

    Attributes
    ----------
    termination : Termination
    primal : PrimalStatus
    dual : DualStatus
    """

    termination: Termination
    primal: PrimalStatus
    dual: DualStatus


@dataclass(frozen=True, eq=False)
class Solution:
    """How a solve ended, and what it found, if anything.

    Attributes
    ----------
    status : Status
    message : str
        One sentence that names the model and, where there is no answer, the constraints or inputs at fault.
    evidence : Evidence
        Of little use to people; what is exact is proved with it.
    """

    status: Status
    message: str
    evidence: Evidence
    _objective: float
    _bound: float

    def __repr__(self) -> str:
        """Tell how the solve ended, and the objective if there is one."""
        figures = ""
        if self.status.termination is Termination.OPTIMAL:
            figures = f", objective {self._objective:.6g}"
        elif self.evidence.program.whole.any() and self.status.primal is PrimalStatus.FEASIBLE:
            figures = f", best so far {self._objective:.6g}, bound {self._bound:.6g}"
        return f"<Solution {self.evidence.program.name}: {self.status.termination.value}{figures}>"

    @property
    def objective(self) -> float:
        """The best value of the objective; `NoAnswerError` unless the status is optimal."""
        if self.status.termination is not Termination.OPTIMAL:
            raise NoAnswerError(f"there is no objective value: {self.message}")
        return self._objective

    @property
    def bound(self) -> float:
        """What no point can beat, as HiGHS computed it in floats: of use where an integer program ran out of time."""
        if self.status.termination is Termination.OPTIMAL or self.evidence.program.whole.any():
            return self._bound
        raise NoAnswerError(f"there is no bound: {self.message}")

    @property
    def values(self) -> Named:
        """Values by name of the variable block; `NoAnswerError` unless the primal status is feasible."""
        if self.status.primal is not PrimalStatus.FEASIBLE:
            raise NoAnswerError(f"there are no values of variables: {self.message}")
        return Named("variable", self.evidence.program.variables, self.evidence.values)

    @property
    def duals(self) -> Named:
        """Prices by name of the constraint block; `NoAnswerError` unless the dual status is feasible.

        A price is the change of the objective, in the sense that the model states it, per unit added to the bound.
        """
        self._check_dual("duals")
        return Named("constraint", self.evidence.program.constraints, self.evidence.duals)

    @property
    def reduced_costs(self) -> Named:
        """Prices of the variables' own bounds, by name of the variable block; as `duals`."""
        self._check_dual("reduced costs")
        return Named("variable", self.evidence.program.variables, self.evidence.reduced_costs)

    @cached_property
    def exact(self) -> ExactAnswer:
        """The optimum in fractions, with prices that prove it; found on first use.

        A coefficient means the simplest fraction that rounds to its float, see `collopt.solvers.lp.rationals`.
        `NoAnswerError` where the solve did not end in a basis that is optimal without tolerances: `interval` says what
        is certain then.
        """
        from ..lp.exact_optimum import exact_answer

        if self.status.termination is not Termination.OPTIMAL:
            raise NoAnswerError(f"there is no exact answer: {self.message}")
        return exact_answer(self.evidence.program, self.evidence.basis)

    @cached_property
    def interval(self) -> Interval:
        """Where the best value lies, as proved in fractions; a single point if there is an exact answer.

        One end is the value of an exact point that is allowed, the other what exact prices prove; an end that cannot
        be had is None.  Branch and bound proves nothing exactly: of an integer program only the former end is known,
        and `bound` is what HiGHS has to say about the latter.  `NoAnswerError` where there is no best value: the model
        is infeasible or unbounded.
        """
        from ..lp.certified_interval import Interval, certified_interval

        if self.status.termination in WITHOUT_BEST_VALUE:
            raise NoAnswerError(f"there is no interval: {self.message}")
        try:
            return Interval(self.exact.objective, self.exact.objective)
        except NoAnswerError:
            return certified_interval(self.evidence)

    def _check_dual(self, what: str) -> None:
        if self.status.dual is not DualStatus.FEASIBLE:
            raise NoAnswerError(f"there are no {what}: {self.message}")
